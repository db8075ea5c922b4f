"""Finished runs in TensorBoard: `ocil run er --listen tensorboard=PLACE`.

| tag                 | at                     | value in percent                               |
|---------------------|------------------------|------------------------------------------------|
| accuracy/READOUT    | the end of each task   | A_t, the average over the tasks so far         |
| forgetting/READOUT  | the end of each task   | average forgetting of the tasks before         |
| anytime/READOUT     | every probe            | accuracy on the classes so far                 |
| tasks/NUMBER        | the end of each task   | a[t, i] of one task, read-out that counts      |
| final/METRIC        | the last step          | the metrics of `ocil show`, same read-out      |

Settings, facts and the numbers of all read-outs are there as text. A run has one folder and one
file below PLACE, named by what it is; telling it again replaces the file.
"""

from __future__ import annotations

import io
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ocil import text
from ocil.errors import OcilError
from ocil.files import make_folder, write_atomic
from ocil.report.render import Cell, Table, to_markdown
from ocil.report.runs import METRICS, Run
from ocil.report.show import facts_table, metrics_table
from ocil.run import metrics

FILE = "events.out.tfevents.ocil"  # TensorBoard reads what has tfevents in its name

Record = dict[str, Any]


class TensorBoard:
    """Writes each record that it gets to a folder of its own below `place`."""

    def __init__(self, place: str) -> None:
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise OcilError(
                "TensorBoard files need tensorboard; install it with `pip install ocil[track]`."
            ) from None
        self.root = Path(place)
        make_folder(self.root)

    def __call__(self, record: Record) -> None:
        folder = self.root / run_name(record)
        make_folder(folder)
        write_atomic(folder / FILE, encoded(record, time.time()))


def run_name(record: Record) -> str:
    """A folder's name from a record, whatever characters that holds."""
    job = (record.get("job") or "")[:8]
    parts = [record["method"], record["data"], record.get("memory") or 0, record["seed"], job]
    return re.sub(r"[^\w.-]+", "_", "{}-{}-m{}-s{}-{}".format(*parts), flags=re.ASCII)


def scalars(record: Record) -> Iterator[tuple[str, int, float]]:
    """(tag, step, percent) of all that can be drawn as a curve."""
    evaluations, tasks, counts = record["evaluations"], record["tasks"], record["readout"]
    ends = sorted({(e["step"], e["task"]) for e in evaluations if e["images"] == "all"})
    for readout in record["readouts"]:
        matrix = metrics.accuracy_matrix(evaluations, tasks, readout)
        curve = metrics.accuracy_curve(matrix)
        for step, t in ends:
            yield f"accuracy/{readout}", step, float(curve[t])
            if (lost := metrics.average_forgetting(matrix[: t + 1, : t + 1])) is not None:
                yield f"forgetting/{readout}", step, lost
            if readout == counts:
                width = len(str(len(tasks)))
                for i in np.flatnonzero(np.isfinite(matrix[t])):
                    yield f"tasks/{i + 1:0{width}}", step, float(matrix[t, i])
        for step, accuracy in metrics.anytime_curve(evaluations, readout):
            yield f"anytime/{readout}", step, accuracy
    last = max((e["step"] for e in evaluations), default=0)
    for name in METRICS:
        value = Run(record).value(name, counts)
        if value is not None:
            yield f"final/{name}", last, value


def texts(record: Record) -> dict[str, str]:
    """Tag -> Markdown of what a run was and came to."""
    rows: list[list[Cell]] = [[k, text.setting(v)] for k, v in sorted(record["settings"].items())]
    tables = {"settings": Table(("setting", "value"), rows, ("setting", "value"))}
    tables |= {"run": facts_table(record), "read-outs": metrics_table(record)}
    return {tag: to_markdown(table) for tag, table in tables.items()}


def encoded(record: Record, now: float) -> bytes:
    """The events of a record in TensorBoard's format, all made at time `now`."""
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[attr-defined]
    from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[attr-defined]
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # type: ignore[attr-defined]
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    def event(step: int, **value: Any) -> bytes:
        summary = Summary(value=[Summary.Value(**value)])
        return Event(wall_time=now, step=step, summary=summary).SerializeToString()

    out = io.BytesIO()
    writer = RecordWriter(out)
    writer.write(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
    for tag, step, value in scalars(record):
        if math.isfinite(value):
            writer.write(event(step, tag=text.plain(tag), simple_value=value))
    for tag, shown in texts(record).items():
        tensor = TensorProto(dtype="DT_STRING", string_val=[shown.encode()])
        about = create_summary_metadata(display_name=tag, description="")
        writer.write(event(0, tag=tag, tensor=tensor, metadata=about))
    writer.flush()
    return out.getvalue()
