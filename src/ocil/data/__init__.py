"""Named data sets as uint8 arrays: find, fetch, check, decode. Loads neither torch nor readers."""

from __future__ import annotations

from ocil.data.dataset import Dataset, load
from ocil.data.sources import SOURCES, Source, SourceFile

__all__ = ["SOURCES", "Dataset", "Source", "SourceFile", "load"]
