"""Folders in object storage: commands work on a copy below the cache folder, and each written file is uploaded."""

from .addresses import address, place_of, shown
from .working_copy import fetch_pictures, local_copy, refresh

__all__ = ["address", "fetch_pictures", "local_copy", "place_of", "refresh", "shown"]
