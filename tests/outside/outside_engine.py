"""An engine: processes of this machine, with a line in noted.txt for each crew of workers."""

from unswayed.jobs.processes import LocalEngine


class NotedEngine(LocalEngine):
    """Processes of this machine, noted."""

    @staticmethod
    def crew(packed, places, settings):
        with open("noted.txt", "a") as file:
            file.write(f"{len(places)}\n")
        return LocalEngine.crew(packed, places, settings)
