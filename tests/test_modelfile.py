"""Model files: exact, checksummed, hostile until checked, without images if asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

import ocil
from ocil import modelfile
from ocil.errors import OcilError

Y = [3, 1, 4] * 11
X = np.random.default_rng(0).integers(256, size=(33, 8, 8), dtype=np.uint8)


def model(method: str = "otc", **more: Any) -> ocil.Classifier:
    given = {"memory": 20, "width": 16, "replay": 8} | more
    return ocil.Classifier(method, **given).partial_fit(X, Y)


@pytest.fixture(scope="module")
def blob() -> bytes:
    return model()._blob()


@pytest.mark.parametrize("method", ["er", "otc"])
def test_learning_goes_on_to_the_same_bits(tmp_path: Path, method: str) -> None:
    first = model(method)
    first.save(tmp_path / "a.ocil")
    again = ocil.load(tmp_path / "a.ocil")
    assert again.classes_.tolist() == [3, 1, 4]
    assert again.counts_ == first.counts_
    for each in (first, again):
        each.partial_fit(X[::-1], [9, *Y[:-1]]).flush()
    assert again.state_sha256() == first.state_sha256()
    assert again.get_params()["memory"] == 20


def test_any_safetensors_reader_opens_it(blob: bytes) -> None:
    assert "learner.memory.column.x" in load_tensors(blob)
    assert model()._blob() == blob  # and the same model gives the same bytes


def test_without_memory_no_image_is_in_the_file(tmp_path: Path) -> None:
    first = model().flush()
    first.save(tmp_path / "a.ocil", memory=False)
    tensors = modelfile.read(tmp_path / "a.ocil").tensors
    assert not [name for name in tensors if "column" in name or "pending" in name]
    assert all(X[i].tobytes() not in (tmp_path / "a.ocil").read_bytes() for i in range(len(X)))
    again = ocil.load(tmp_path / "a.ocil")
    assert again.predict(X).tolist() == first.predict(X).tolist()
    assert again.pending_ == 0
    again.partial_fit(X, Y)
    assert again._learned is not None
    assert len(again._learned.session.learner.memory) == 20


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(1, 255), cut=st.booleans())
def test_a_truncated_or_altered_file_is_refused(
    blob: bytes, tmp_path_factory: pytest.TempPathFactory, place: float, byte: int, cut: bool
) -> None:
    at = int(place * len(blob))
    content = bytearray(blob)
    content[at] ^= byte
    path = tmp_path_factory.mktemp("model") / "a.ocil"
    path.write_bytes(blob[:at] if cut else bytes(content))
    with pytest.raises(OcilError):
        ocil.load(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cut off"),
        (b"\xff" * 8 + b"{}", "its header would have 18446744073709551615 bytes"),
        ((1 << 30).to_bytes(8, "little") + b"{}", "its header would have 1073741824 bytes"),
        (b"PK\x03\x04" + b"x" * 100, "no model of ocil"),
        (save_tensors({"a": torch.zeros(3)}), "of another program"),
        (save_tensors({"a": torch.zeros(3)}, {"ocil.model": "[" * 100_000}), "truncated, altered"),
        (save_tensors({"a": torch.zeros(3)}, {"ocil.model": '{"version": 0}'}), "version is 0"),
        (save_tensors({}, {"ocil.model": '{"version": 2}'}), "newer ocil .format 2.*; upgrade"),
    ],
)
def test_files_of_others(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "a.ocil"
    path.write_bytes(content)
    with pytest.raises(OcilError, match=said):
        ocil.load(path)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(OcilError, match="no model file"):
            ocil.load(path)


def forged(blob: bytes, **changes: Any) -> bytes:
    """The sums agree, the content does not."""
    note, tensors = modelfile.parse(blob)
    for key, value in changes.items():
        note[key] = note[key] | value if isinstance(value, dict) else value
    return modelfile.dump(note, tensors)


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": {"width": 10**9}},
        {"settings": {"memory": 1}},
        {"settings": {"net": "resnet18"}},
        {"settings": {"components": 7}},
        {"settings": {"unknown": 7}},
        {"method": "er"},
        {"method": "os.system"},
        {"shape": [2**40]},
        {"shape": "abc"},
        {"dtype": "object"},
        {"counts": [1]},
        {"scalars": {"labels": [1, 1, 1]}},
        {"scalars": {"labels": [1, "a", 2]}},
        {"scalars": {"step": -1}},
        {"scalars": {"pending": ["a"]}},
        {"scalars": None},
    ],
)
def test_forged_content_is_a_sentence(blob: bytes, tmp_path: Path, changes: dict[str, Any]) -> None:
    (tmp_path / "a.ocil").write_bytes(forged(blob, **changes))
    with pytest.raises(OcilError):
        ocil.load(tmp_path / "a.ocil")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, k: t.pop(f"{k}.step"), r"has \['exp_avg', 'exp_avg_sq'\], not"),
        (lambda t, k: t.pop(f"{k}.exp_avg"), r"has \['exp_avg_sq', 'step'\], not"),
        (lambda t, k: t.update({f"{k}.momentum_buffer": torch.zeros(1)}), "momentum_buffer"),
        (
            lambda t, k: t.update({f"{k}.exp_avg": torch.zeros(())}),
            "not have its parameter's shape",
        ),
        (lambda t, k: t.update({f"{k}.step": torch.zeros(3)}), "not have its parameter's shape"),
        (lambda t, k: t.update({f"{k}.step": torch.tensor(True)}), "holds torch.bool"),
        (
            lambda t, k: t.update({"learner.optimizer.99.step": torch.tensor(1.0)}),
            "no parameter 99",
        ),
    ],
)
def test_a_forged_state_of_the_optimiser(
    blob: bytes, tmp_path: Path, change: Callable[[dict[str, Any], str], Any], said: str
) -> None:
    note, tensors = modelfile.parse(blob)
    change(tensors, "learner.optimizer.0")
    (tmp_path / "a.ocil").write_bytes(modelfile.dump(note, tensors))
    with pytest.raises(OcilError, match=said):
        ocil.load(tmp_path / "a.ocil")


def test_a_network_of_another_size_is_not_even_built(blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ocil").write_bytes(forged(blob, settings={"width": 10**9}))
    with pytest.raises(OcilError, match="the network has other weights than the file"):
        ocil.load(tmp_path / "a.ocil")


def test_a_forged_file_without_changes_loads(blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ocil").write_bytes(forged(blob))
    assert ocil.load(tmp_path / "a.ocil").state_sha256() == model().state_sha256()
    assert json.loads(json.dumps(modelfile.parse(blob).note))["version"] == 1
