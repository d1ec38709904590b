"""Names that must stay text."""

from __future__ import annotations

HOSTILE_MODEL = "<script>window.hacked=1</script>"
HOSTILE_EDIT = "<img src=x onerror=window.hacked=1>${window.hacked=1}{{constructor}}"
