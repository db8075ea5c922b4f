"""Methods on a fixed encoder: every check on every encoder, and states that ignore the calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from ocil import Classifier, checks, load
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.fecam import ClassScatters, normalised
from ocil.learners.logistic import EvenMemory, fit
from ocil.learners.ranpac import RidgeMoments
from ocil.moments.shrinkage import GRID
from ocil.nets.foreign import offering
from ocil.run.reading import read_record
from ocil.session import Session

METHODS = ("fecam", "knn", "logistic", "ncm", "ranpac", "slda")


def frozen() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU()).requires_grad_(False)


def session(method: str, net: str = "patches", **changes: Any) -> Session:
    kind = registry.get(method)
    memory = {"memory": 20} if method in ("knn", "logistic") else {}
    width = {"patches": 6, "random": 30}.get(net, 0)
    settings = kind.settings_type(**({"net": net, "width": width} | memory | changes))
    return Session(kind, settings, checks.SHAPE)


def fed(made: Session, n: int, size: int, start: int = 0) -> Session:
    """Samples start to n of one stream in calls of this size; a new class now and then."""
    labels = [i % 3 + i // 90 for i in range(start, n)]
    x = torch.cat([checks.images([i % 3 + i // 90], seed=i) for i in range(start, n)])
    for at in range(0, len(labels), size):
        made.learn(x[at : at + size], labels[at : at + size])
    return made


def tensors(made: Session) -> dict[str, Tensor]:
    """The state but for what depends on the calls: images encoded, and the order of later draws."""
    calls = ("learner.counts", "learner.memory.place")
    return {k: v for k, v in made.state().tensors.items() if k not in calls}


def assert_equal(one: Session, other: Session) -> None:
    found = tensors(other)
    for name, value in tensors(one).items():
        assert torch.equal(value, found[name]), name


@pytest.mark.parametrize("net", ["patches", "random", "identity", "module", "resnet18"])
@pytest.mark.parametrize("method", METHODS)
def test_every_check_on_every_encoder(
    method: str, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = checks.small_settings

    def small(kind: Any, **changes: Any) -> Any:
        return plain(kind, **({"net": net, "width": 4 if net == "resnet18" else 6} | changes))

    monkeypatch.setattr(checks, "small_settings", small)
    with offering(frozen()):
        for check in checks.CHECKS:
            if check is not checks.learns_from_any_label_order or net not in ("random", "resnet18"):
                check(registry.get(method))


@pytest.mark.parametrize("net", ["patches", "random"])
@pytest.mark.parametrize(
    ("method", "memory"),
    [("fecam", None), ("ncm", None), ("ranpac", None), ("slda", None), ("slda", 30), ("knn", 30),
     ("logistic", 30)],
)  # fmt: skip
def test_equal_bits_in_any_chunking(method: str, memory: int | None, net: str) -> None:
    for n in (10, 45, 640):
        one = fed(session(method, net, memory=memory), n, 10)
        for size in (7, 1000):
            other = fed(session(method, net, memory=memory), n, size)
            assert_equal(one, other)
        x = checks.images([0, 1, 2])
        assert torch.equal(one.learner.scores(x), other.learner.scores(x))


@pytest.mark.parametrize("net", ["patches", "random"])
@pytest.mark.parametrize("at", [5, 10, 25, 40, 150, 299, 300, 310])
def test_resume_anywhere_is_exact(net: str, at: int) -> None:
    one = fed(session("slda", net), at, 5)
    other = session("slda", net)
    state = one.state()
    other.load(type(state)({k: v.clone() for k, v in state.tensors.items()}, state.scalars))
    x = checks.images([0, 1, 2])
    assert torch.equal(one.learner.scores(x), other.learner.scores(x))
    for each in (one, other):
        fed(each, 420, 5, start=at)
    assert one.state().sha256() == other.state().sha256()
    assert torch.equal(one.learner.scores(x), other.learner.scores(x))


def test_the_encoder_is_made_at_counts_of_samples() -> None:
    made, found = session("slda"), []
    net: Any = made.learner.model.net
    for n in range(0, 350, 7):
        fed(made, n + 7, 7, start=n)
        found.append(int(net.fitted))
    assert sorted(set(found)) == [1, 10, 40, 300]
    assert found[:2] == [1, 10]
    assert found[5] == 40  # after 42
    assert found.index(300) == 42  # after 301


def test_raw_images_are_state_until_they_are_dropped() -> None:
    made = fed(session("slda"), 290, 10)
    learner: Any = made.learner
    raw = learner.encoder.first.nbytes
    assert raw == 290 * (64 + 8)
    assert learner.nbytes == raw + learner.moments.nbytes
    assert made.state().tensors["learner.first.column.x"].shape == (290, 1, 8, 8)
    fed(made, 320, 10, start=290)
    assert learner.encoder.first.nbytes == 0
    assert "learner.first.column.x" not in made.state().tensors
    assert learner.moments.total == 320


@pytest.mark.parametrize("method", ["slda", "ranpac", "ncm", "fecam"])
@pytest.mark.parametrize("memory", [None, 20])
def test_saved_without_samples_it_holds_none_and_keeps_its_encoder(
    method: str, memory: int | None
) -> None:
    if memory and method in ("ncm", "fecam"):
        return
    made, other = fed(session(method, memory=memory), 130, 10), session(method, memory=memory)
    state = made.state(samples=False)
    held = ("column", ".rows", ".kept", ".labels")
    assert not [k for k, v in state.tensors.items() if any(h in k for h in held) and v.numel()]
    other.load(state)
    x = torch.cat([checks.images([0, 1, 2], seed=i) for i in range(900, 920)])
    one, two = made.learner.scores(x), other.learner.scores(x)
    assert float((one.argmax(1) == two.argmax(1)).float().mean()) > 0.95
    fed(other, 350, 10, start=130)
    net: Any = other.learner.model.net
    assert int(net.fitted) == 40
    whole = fed(session(method, memory=memory), 350, 10)
    assert other.learner.classes == whole.learner.classes


def test_a_second_epoch_is_passed_over() -> None:
    made = fed(session("slda", epochs=2), 30, 10)
    before = made.learner.state_dict()
    made.learn(checks.images([0, 1]), [0, 1], epoch=1)
    assert all(torch.equal(v, before[k]) for k, v in made.learner.state_dict().items())


@pytest.mark.parametrize("method", ["slda", "ranpac"])
def test_with_a_memory_its_images_choose_and_no_features_are_kept(method: str) -> None:
    made = fed(session(method, memory=50), 400, 10)
    moments = made.learner.moments  # type: ignore[attr-defined]
    assert len(made.learner.memory) == 50
    assert len(moments.kept.kept) == 0
    assert float(moments.choice[1]) == 300


@pytest.mark.parametrize("method", ["ncm", "fecam"])
def test_a_memory_that_would_serve_nothing_is_refused(method: str) -> None:
    with pytest.raises(OcilError, match=f"{method} keeps no memory, but memory is 20; leave"):
        session(method, memory=20)


def test_randumb_is_a_preset_of_slda() -> None:
    values, used = registry.resolve("slda", {"preset": "randumb", "data": "digits"})
    assert used == "randumb"
    assert (values["net"], values["random.kind"]) == ("random", "fourier")
    made = fed(Session("slda", registry.make_settings("slda", values | {"width": 300}), (1, 8, 8)),
               90, 10)  # fmt: skip
    labels = [0, 1, 2] * 5
    answers = made.learner.scores(checks.images(labels, seed=999)).argmax(1)
    assert int((answers == torch.tensor(labels)).sum()) >= 14


@pytest.mark.parametrize(
    ("net", "given"), [("random", {"patches.pool": 3}), ("patches", {"random.kind": "fourier"})]
)
def test_options_of_another_encoder_are_refused(net: str, given: dict[str, Any]) -> None:
    with pytest.raises(OcilError, match=f"has no effect with net = {net}"):
        registry.resolve("slda", {"net": net} | given)


def test_neighbours_need_a_memory() -> None:
    with pytest.raises(OcilError, match=r"knn cannot do without a memory.*--memory 500"):
        session("knn", memory=None)


@pytest.mark.parametrize("net", ["patches", "random"])
def test_a_method_that_trains_refuses_a_fixed_encoder(net: str) -> None:
    with pytest.raises(OcilError, match=f"The network {net} is fixed, and er trains"):
        checks.make(registry.get("er"), net=net)


# ------------------------------------------------------------------ the methods against oracles


def noise(n: int, d: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    y = torch.arange(n) % classes
    return torch.randn(n, d, generator=draw) + torch.eye(classes, d)[y], y


def test_ncm_is_the_nearest_mean() -> None:
    made = fed(session("ncm", "identity"), 40, 8)
    x = torch.cat([checks.images([i % 3], seed=i) for i in range(40)]).flatten(1) / 255
    y = np.arange(40) % 3
    means = np.stack([x.double().numpy()[y == c].mean(0) for c in range(3)])
    new = checks.images([2, 0])
    wanted = -((new.flatten(1).double().numpy()[:, None] / 255 - means) ** 2).sum(2)
    np.testing.assert_allclose(made.learner.scores(new).numpy(), wanted, rtol=1e-5)


def test_neighbours_are_those_of_scikit_learn() -> None:
    made = fed(session("knn", "identity", memory=30, neighbours=4), 80, 8)
    columns = made.learner.memory.columns
    x, y = columns["x"].flatten(1).numpy() / 255, columns["y"].numpy()
    oracle = KNeighborsClassifier(4, weights="distance").fit(x, y)
    new = checks.images([0, 1, 2] * 5, seed=77)
    found = made.learner.scores(new).double()
    wanted = oracle.predict_proba(new.flatten(1).numpy() / 255)
    np.testing.assert_allclose((found / found.sum(1, keepdim=True)).numpy(), wanted, atol=1e-3)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_is_that_of_scikit_learn_on_scaled_columns(classes: int) -> None:
    z, y = noise(80, 5, classes)
    z = z * torch.tensor([1.0, 10.0, 0.1, 1.0, 0.0]) + 7  # the last says nothing
    found = fit(z, y, classes + 1, columns=True)  # there is no sample of the last class
    said = (z.double() - found["mean"]) / found["scale"] @ found["weight"].T + found["bias"]
    oracle = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=1000))
    wanted = oracle.fit(z.double().numpy(), y.numpy()).predict_proba(z.double().numpy())
    np.testing.assert_allclose(said.softmax(1)[:, :classes].numpy(), wanted, atol=1e-6)
    assert not said.softmax(1)[:, classes].any()


def test_logistic_regression_of_one_class_and_of_images() -> None:
    alone = fit(torch.rand(4, 3), torch.zeros(4, dtype=torch.int64), 1, columns=True)
    assert alone["bias"].tolist() == [0.0]
    assert not alone["weight"].any()
    z, y = noise(30, 4)
    assert len(fit(z, y, 3, columns=False)["scale"].unique()) == 1


def test_an_even_memory_shares_out_what_the_stream_has() -> None:
    stream = [0] * 300 + [1] * 40 + [2] * 3
    draw, y = torch.Generator().manual_seed(0), torch.tensor(stream)
    held, kept = EvenMemory(30), torch.zeros(300)
    held.reservoir(torch.arange(len(y))[:, None], y, draw)
    assert sorted(len(own) for own in held.members) == [3, 13, 14]
    for _ in range(300):
        memory = EvenMemory(30)
        memory.reservoir(torch.arange(300)[:, None], y[:300], draw)
        kept[memory.columns["x"][:, 0]] += 1
    early, late = float(kept[:150].mean()), float(kept[150:].mean())
    assert early == pytest.approx(late, rel=0.05)  # whatever the place in the stream


def test_ridge_and_its_left_out_errors() -> None:
    z, y = noise(60, 7)
    moments = RidgeMoments(7, keeps=False)
    moments.add(z, y)
    moments.enter()
    rho = GRID[5]
    moments.choice[0] = 60 * rho / (1 - rho)
    x = (z - moments.shift).double()
    one_hot = torch.eye(3).double()[y]
    g = x.T @ x
    ridge = float(g.trace()) / 7 * rho / (1 - rho) * torch.eye(7).double()
    found = moments.scores(z).double()
    wanted = x @ torch.linalg.solve(g + ridge, x.T @ one_hot)
    np.testing.assert_allclose(found * (1 - rho), wanted.numpy(), atol=1e-4)
    errors = []
    for i in range(60):
        rest = torch.arange(60) != i
        w = torch.linalg.solve(x[rest].T @ x[rest] + ridge, x[rest].T @ one_hot[rest])
        errors.append(float((x[i] @ w - one_hot[i]).square().sum()))
    assert float(moments.losses(x, y)[5]) == pytest.approx(float(np.mean(errors)), rel=1e-4)


def test_class_covariances_and_distances() -> None:
    z, y = noise(50, 5)
    scatters = ClassScatters(5, torch.device("cpu"))
    for part, labels in zip(z.split(9), y.split(9), strict=True):
        scatters.add(part, labels)
    found = scatters.scores(z[:4])
    for c in range(3):
        rows = z[y == c].double().numpy()
        s = np.cov(rows.T, bias=True)
        off = (s.sum() - np.trace(s)) / 20
        shrunk = s + np.trace(s) / 5 * np.eye(5) + off * (1 - np.eye(5))
        scale = np.sqrt(np.diag(shrunk))
        apart = z[:4].double().numpy() - rows.mean(0)
        inverse = np.linalg.inv(shrunk / np.outer(scale, scale))
        wanted = -np.einsum("ni,ij,nj->n", apart, inverse, apart)
        np.testing.assert_allclose(found[:, c].numpy(), wanted, rtol=1e-4)
    torch.testing.assert_close(normalised(torch.zeros(2, 3, 3)), torch.eye(3).expand(2, 3, 3))


def test_many_features_share_a_covariance() -> None:
    wide, narrow = session("fecam", "random", width=257), session("fecam", "random", width=256)
    assert "learner.fecam.second" in wide.state().tensors
    assert "learner.fecam.scatters" in narrow.state().tensors


# ------------------------------------------------------------------ in use


def test_a_classifier_of_vectors(tmp_path: Path) -> None:
    x, y = load_wine(return_X_y=True)
    turned = np.random.default_rng(0).permutation(len(x))
    x, y = x[turned].astype(np.float32), y[turned]
    order = np.argsort(y[:120], kind="stable")  # class after class
    for method, memory in (("slda", 50), ("ncm", None), ("ranpac", None), ("fecam", None)):
        model = Classifier(method, memory=memory, net="random", width=200)
        model.partial_fit(x[order], y[order])
        assert model.score(x[120:], y[120:]) > 0.85
        model.save(tmp_path / "model.ocil")
        again = load(tmp_path / "model.ocil")
        assert np.array_equal(model.scores(x), again.scores(x))
        model.save(tmp_path / "bare.ocil", memory=False)
        bare = load(tmp_path / "bare.ocil")
        assert (model.predict(x) == bare.predict(x)).mean() > 0.98


def test_slda_on_digits_with_patches(ocil: Callable[..., Any], tmp_path: Path) -> None:
    words = "--data digits --validate --width 20 --limit-per-class 60 --eval-every 0"
    assert ocil("run", "slda", *words.split(), "--out", str(tmp_path / "run")).code == 0
    record = read_record(tmp_path / "run" / "record.json")
    assert record["settings"]["net"] == "patches"
    assert record["final_average_accuracy"] > 93
    assert record["gradient_steps_per_batch"] == 0
