"""A model source of an outside package that declares that it only reads data on this machine."""

from unswayed.models.wheels import open_lite
from unswayed.registry import declare


@declare(
    usage="harmless:NUMBER", runs_code=False, uses_network=False, facts={"transform": True, "names": lambda: ["0", "1"]}
)
def open_harmless(spec, labels=None, **where):
    """EfficientNet-Lite again."""
    return open_lite(spec, labels, **where)
