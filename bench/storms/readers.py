"""Every reader with a small sound file of its own, and how that file is damaged."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import mutations
from .mutations import Draw


class Reader(NamedTuple):
    """How a kind of file is made, damaged and read."""

    name: str
    make: Callable[[Path], None]
    """Fill an empty folder."""
    read: Callable[[Path], Any]
    """Read from the folder; what it gives is the same for the same data."""
    words: Callable[[Path], list[str]]
    """The command that reads the folder."""
    damage: Callable[[Path, Draw], None]
    exact: bool = False
    """Sums in the file: what is read must be what was written."""


def bytes_of(*patterns: str) -> Callable[[Path, Draw], None]:
    """Damage to the bytes of one file; of JSON and TOML half of the time to its values."""

    def damage(folder: Path, draw: Draw) -> None:
        files = sorted(p for pattern in patterns for p in folder.rglob(pattern) if p.is_file())
        file = files[int(draw.integers(len(files)))]
        how = {".json": mutations.in_json, ".toml": mutations.in_toml}.get(file.suffix)
        change = how if how and draw.random() < 0.5 else mutations.in_bytes
        file.write_bytes(change(file.read_bytes(), draw))

    return damage


def _one(pattern: str, change: Callable[[Path, Draw], None]) -> Callable[[Path, Draw], None]:
    def damage(folder: Path, draw: Draw) -> None:
        files = sorted(folder.rglob(pattern))
        change(files[int(draw.integers(len(files)))], draw)

    return damage


# ------------------------------------------------------------------ data


def picture(seed: int, form: str = "PNG", side: int = 8) -> bytes:
    from PIL import Image

    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return stream.getvalue()


def _npz(folder: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (20, 6, 6)).astype(np.uint8)
    y = np.arange(20) % 2
    np.savez(folder / "a.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])


def _npy(folder: Path) -> None:
    _model(folder)
    np.save(folder / "a.npy", np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32))


def _table(kind: str) -> Any:
    import pyarrow

    note = {"info": {"features": {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
    label = pyarrow.array([0, 1] * 6)
    if kind == "image":
        items: Any = pyarrow.array([{"bytes": picture(i), "path": None} for i in range(12)])
    else:
        items = pyarrow.array([[float(i), 1.0, 2.0] for i in range(12)])
    table = pyarrow.table({kind: items, "label": label, "word": ["a", "b", None] * 4})
    return table.replace_schema_metadata({b"huggingface": json.dumps(note).encode()})


def _parquet(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(_table(kind), folder / "a.parquet")

    return make


def _saved(kind: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        import pyarrow

        (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        for split in ("train", "test"):
            (folder / split).mkdir()
            name, table = "data-00000-of-00001.arrow", _table(kind)
            with pyarrow.ipc.new_stream(str(folder / split / name), table.schema) as sink:
                sink.write_table(table)
            state = {"_data_files": [{"filename": name}], "_fingerprint": "a", "_split": split}
            (folder / split / "state.json").write_text(json.dumps(state))

    return make


def _pictures(folder: Path) -> None:
    for label in ("ant", "bee"):
        (folder / label).mkdir()
        for i, form in enumerate(("PNG", "JPEG", "WEBP", "GIF", "BMP")):
            (folder / label / f"{i}.{form.lower()}").write_bytes(picture(i, form))


def _idx(folder: Path) -> None:
    (folder / "mnist").mkdir()
    draw = np.random.default_rng(0)
    for part, count in (("train", 20), ("t10k", 10)):
        images = draw.integers(0, 256, (count, 28, 28)).astype(np.uint8).tobytes()
        content = struct.pack(">HBB3I", 0, 8, 3, count, 28, 28) + images
        (folder / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
        labels = struct.pack(">HBBI", 0, 8, 1, count) + bytes(i % 10 for i in range(count))
        (folder / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def _batches() -> dict[str, bytes]:
    draw = np.random.default_rng(0)
    found = {}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        pixels = draw.integers(0, 256, (10, 3072)).astype(np.uint8)
        content = {"data": pixels, "labels": list(range(10)), "batch_label": "a batch"}
        found[name] = pickle.dumps(content, protocol=4)
    return found


def _pickles(folder: Path) -> None:
    inner = folder / "cifar10" / "cifar-10-batches-py"
    inner.mkdir(parents=True)
    for name, data in _batches().items():
        (inner / name).write_bytes(data)


def _tar(folder: Path) -> None:
    (folder / "cifar10").mkdir()
    with tarfile.open(folder / "cifar10" / "cifar-10-python.tar.gz", "w:gz") as archive:
        for name, data in _batches().items():
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _cifar_parquet(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    (folder / "cifar10").mkdir()
    for part in ("train", "test"):
        items = [{"bytes": picture(i, "PNG", 32), "path": None} for i in range(10)]
        table = pyarrow.table({"img": items, "label": list(range(10))})
        parquet.write_table(table, folder / "cifar10" / f"{part}.parquet")


def _tiny(folder: Path) -> None:
    (folder / "tiny-imagenet").mkdir()
    ids = ["n00000001", "n00000002"]
    files = {"wnids.txt": "\n".join(ids).encode(), "words.txt": f"{ids[0]}\tcat, feline".encode()}
    for label, key in enumerate(ids):
        for i in range(2):
            files[f"train/{key}/images/{key}_{i}.JPEG"] = picture(i, "JPEG", 64)
        files[f"val/images/val_{label}.JPEG"] = picture(label, "JPEG", 64)
    notes = "\n".join(f"val_{i}.JPEG\t{key}\t0\t0\t63\t63" for i, key in enumerate(ids))
    files["val/val_annotations.txt"] = notes.encode()
    path = folder / "tiny-imagenet" / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", data)


def _own(name: str = "") -> Callable[[Path], str]:
    """Read data of one's own to their fingerprint, which covers every value and label."""

    def read(folder: Path) -> str:
        from ocil.data.own import OwnData

        found = OwnData(folder / name).dataset
        _is_whole(found)
        return found.fingerprint

    return read


def _named(name: str) -> Callable[[Path], str]:
    def read(folder: Path) -> str:
        from ocil.data.dataset import load

        found = load(name, folder)
        _is_whole(found)
        return found.fingerprint

    return read


def _is_whole(found: Any) -> None:
    """What later code leans on: as many labels as items, known classes, finite numbers."""
    pairs = ((found.train_images, found.train_labels), (found.test_images, found.test_labels))
    for items, labels in pairs:
        assert items.dtype in (np.uint8, np.float32) and items.ndim in (2, 4), items.dtype
        assert len(items) == len(labels) > 0 and np.isfinite(items).all()
        assert 0 <= labels.min() <= labels.max() < len(found.class_names)


def _learn(name: str = "") -> Callable[[Path], list[str]]:
    return lambda folder: [
        "learn", str(folder / name), "--method", "er", "--net", "mlp",
        "--model", str(folder.parent / "new.ocil"),
    ]  # fmt: skip


def _check(name: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["data", "check", name, "--data-dir", str(folder)]


# ------------------------------------------------------------------ models and runs

STUDY = """name = "a-study"
[base]
data = "digits"
limit_per_class = 12
[[grid]]
method = "er"
memory = [10, 20]
lr = [1e-3, 0.01]
seed = [0, 1]
[[grid]]
method = "otc"
memory = 30
"""
SETTINGS = """memory = 20
lr = 1e-3
limit_per_class = 3
width = 8
seed = 3
net = "mlp"
eval_every = 0
optimizer = "sgd"
augment = "none"
batch = 10
"""
RUN = ["--limit-per-class", "6", "--memory", "20", "--width", "8", "--replay", "8",
       "--checkpoint-every", "2", "--eval-every", "3", "--probe", "20", "--latents"]  # fmt: skip


def _model(folder: Path, method: str = "otc") -> None:
    import ocil

    draw = np.random.default_rng(0)
    x = draw.normal(size=(34, 6)).astype(np.float32)
    model = ocil.Classifier(method, memory=12, width=8)
    model.partial_fit(x, [f"class {i % 3}" for i in range(34)])
    model.save(folder / "a.ocil")


def _use_model(folder: Path) -> str:
    """Load, ask, and go on learning: all that the state of a file takes part in."""
    import ocil

    model = ocil.load(folder / "a.ocil")
    found = model.state_sha256()
    x = np.random.default_rng(1).normal(size=(25, 6)).astype(np.float32)
    model.predict_proba(x)
    model.partial_fit(x, [f"class {i % 4}" for i in range(25)])
    model.predict_proba(x)
    model.state_sha256()
    return found


def _run(folder: Path) -> None:
    from ocil.cli import main

    out = folder / "run"
    try:
        main(["run", "otc", *RUN, "--out", str(out)])
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"ocil run ended with {stop.code}") from stop


def _unfinished(folder: Path) -> None:
    _run(folder)
    record = json.loads((folder / "run" / "record.json").read_bytes())
    (folder / "job.txt").write_text(record["job"])
    (folder / "run" / "record.json").unlink()
    for file in (folder / "run" / "checkpoints").iterdir():
        if "00000010" in file.name:
            file.unlink()


def _resume(folder: Path) -> str:
    """The end of a run: whatever was damaged, the same bits, unless other settings were asked."""
    from ocil.errors import OcilError
    from ocil.run.loop import resume_run

    record = resume_run(folder / "run")
    if record["job"] != (folder / "job.txt").read_text():
        raise OcilError("It is another run by its settings.")
    text = json.dumps([record["evaluations"], record["state_sha256"]])
    return hashlib.sha256(text.encode()).hexdigest()


def _show(folder: Path) -> str:
    from ocil.report.show import show
    from ocil.run.reading import read_record

    record = read_record(folder / "run")
    list(show(record))
    return json.dumps(record)


def _latents(folder: Path) -> str:
    from ocil.report.latent import find_latents, latent_chart
    from ocil.report.runs import read_runs

    found = [latent_chart(kept, "", 60) for kept in find_latents(read_runs([folder / "run"]))]
    return json.dumps([[series.x, series.y] for chart in found for series in chart.series])


def _study(folder: Path) -> list[str]:
    from ocil.study.grid import read_study

    return [plan.job for plan in read_study(folder / "a.toml").plans]


def _settings(folder: Path) -> str:
    from ocil.commands.run import plan_from_words

    return plan_from_words("er", ["--config", str(folder / "a.toml")])[0].job


def _text(content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "a.toml").write_text(content)

    return make


def _words(*words: str) -> Callable[[Path], list[str]]:
    """@ stands for the folder."""
    return lambda folder: [word.replace("@", str(folder)) for word in words]


_npy_words = _words("predict", "@/a.ocil", "@/a.npy")
_resume_words = _words("resume", "@/run")
READERS = (
    Reader("npz", _npz, _own("a.npz"), _learn("a.npz"), bytes_of("a.npz"), True),
    Reader("npy", _npy, lambda f: _answers(f), _npy_words, bytes_of("a.npy")),
    Reader("parquet of pictures", _parquet("image"), _own("a.parquet"), _learn("a.parquet"),
           bytes_of("a.parquet")),
    Reader("parquet of vectors", _parquet("embedding"), _own("a.parquet"), _learn("a.parquet"),
           bytes_of("a.parquet")),
    Reader("saved data set of pictures", _saved("image"), _own(), _learn(), bytes_of("*")),
    Reader("saved data set of vectors", _saved("embedding"), _own(), _learn(),
           bytes_of("*.arrow")),
    Reader("picture folder", _pictures, _own(), _learn(), bytes_of("*")),
    Reader("IDX", _idx, _named("mnist"), _check("mnist"), bytes_of("*.gz"), True),
    Reader("CIFAR pickles", _pickles, _named("cifar10"), _check("cifar10"), bytes_of("*_batch*")),
    Reader("CIFAR archive", _tar, _named("cifar10"), _check("cifar10"), bytes_of("*.gz"), True),
    Reader("CIFAR parquet", _cifar_parquet, _named("cifar10"), _check("cifar10"),
           bytes_of("*.parquet")),
    Reader("Tiny-ImageNet zip", _tiny, _named("tiny-imagenet"), _check("tiny-imagenet"),
           bytes_of("*.zip")),
    Reader("study", _text(STUDY), _study, _words("study", "@/a.toml", "--dry-run", "--out", "@/o"),
           bytes_of("a.toml")),
    Reader("settings", _text(SETTINGS), _settings,
           _words("run", "er", "--config", "@/a.toml", "--help"), bytes_of("a.toml")),
    Reader("record", _run, _show, _words("report", "@/run", "--out", "@/page"),
           bytes_of("record.json")),
    Reader("run folder", _unfinished, _resume, _resume_words,
           bytes_of("*.json", "*.jsonl", "*.safetensors"), True),
    Reader("forged checkpoint", _unfinished, _resume, _resume_words,
           _one("step-*.json", mutations.forged_checkpoint)),
    Reader("latents", _run, _latents, _words("figure", "latent", "@/run", "--out", "@/a.png"),
           _one("latents.safetensors", mutations.forged_latents)),
    Reader("model", _model, _use_model, _words("inspect", "@/a.ocil"), bytes_of("a.ocil"), True),
    Reader("forged model", _model, _use_model, _words("inspect", "@/a.ocil"),
           _one("a.ocil", mutations.forged_model)),
    Reader("forged model of er", lambda f: _model(f, "er"), _use_model,
           _words("inspect", "@/a.ocil"), _one("a.ocil", mutations.forged_model)),
)  # fmt: skip


def _answers(folder: Path) -> str:
    import ocil
    from ocil.commands.items import read_files

    model = ocil.load(folder / "a.ocil")
    return str(model.predict_proba(read_files(model, [folder / "a.npy"])[0]))
