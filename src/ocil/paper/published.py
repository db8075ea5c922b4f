"""The paper's numbers, as data: `published.toml` beside this file, read once."""

import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class Printed:
    """One number of a table of the paper, in percent, with the deviation it prints, if any."""

    label: str  # "Table 1"
    method: str
    data: str
    memory: int
    metric: str  # accuracy or forgetting
    value: float
    deviation: float | None = None
    offline: bool = False  # several passes over each task
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of an ablation

    def __str__(self) -> str:
        digits = 1 if self.deviation is not None or not self.offline else 2  # as printed
        shown = f"{self.value:.{digits}f}"
        return shown if self.deviation is None else f"{shown} ± {self.deviation:.{digits}f}"


@functools.cache
def printed() -> tuple[Printed, ...]:
    """Every number of the paper's tables, in the order of the paper."""
    return tuple(number for table in _content()["table"] for number in _numbers(table))


def protocol(key: str) -> int:
    """What the paper fixes for every run: batch, replay or runs."""
    return _content()["protocol"][key]


def tasks_of(data: str) -> Sequence[int]:
    """How many tasks the paper's stream has; it names two numbers for Tiny-ImageNet."""
    return _content()["protocol"]["tasks"].get(data, ())


@functools.cache
def _content() -> dict[str, Any]:
    file = files("ocil.paper") / "published.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def _numbers(table: Mapping[str, Any]) -> Iterator[Printed]:
    """The rows of one table, a cell for each memory size or number of components."""
    base = dict(table.get("settings", {}))
    columns: list[tuple[int, dict[str, Any]]]
    if "components" in table:
        columns = [(table["memory"][0], base | {"components": k}) for k in table["components"]]
    else:
        columns = [(memory, base) for memory in table["memory"]]
    for method, cells in table["rows"].items():
        for (memory, settings), cell in zip(columns, cells, strict=True):
            value, deviation = cell if isinstance(cell, list) else (cell, None)
            about = table["label"], method, table["data"], memory, table["metric"]
            yield Printed(*about, value, deviation, table.get("offline", False), settings)
