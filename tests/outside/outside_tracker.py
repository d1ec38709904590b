"""A tracker that appends what it is told to ledger.jsonl."""

import json

from unswayed.registry import declare


class Ledger:
    def __init__(self, name, run_id):
        self.run_id = run_id or f"run of {name}"

    def _write(self, kind, value):
        with open("ledger.jsonl", "a") as file:
            file.write(json.dumps({"run": self.run_id, "kind": kind, "value": value}) + "\n")

    def parameters(self, values):
        self._write("parameters", dict(values))

    def metrics(self, values):
        self._write("metrics", dict(values))

    def flips(self, flips):
        self._write("flips", [flip.sample_id for flip in flips])

    def file(self, path):
        self._write("file", path.name)

    def close(self):
        self._write("close", None)


@declare(help="a file of lines", facts={"variable": "LEDGER"})
def open_ledger(name, run_id):
    return Ledger(name, run_id)
