"""The classifier: same bits as a run whatever the chunks, nothing half-applied, conventions."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ocil
from ocil import data
from ocil.errors import OcilError
from ocil.run.loop import start_run
from ocil.settings import to_mapping
from ocil.stream import Stream

DATA = os.environ.get("OCIL_DATA")
SMALL = {"memory": 20, "width": 16, "lr": 5e-3, "ema": 0.9, "replay": 8}


def pictures(labels: Any, seed: int = 0) -> np.ndarray:
    """Noise with one bright row for each label, uint8 (n, 8, 8)."""
    x = np.random.default_rng(seed).integers(60, size=(len(labels), 8, 8), dtype=np.uint8)
    for i, label in enumerate(labels):
        x[i, hash(label) % 8 if isinstance(label, str) else label % 8] += 180
    return x


def fed(**changes: Any) -> ocil.Classifier:
    y = [0, 1, 2] * 11
    return ocil.Classifier("er", **(SMALL | changes)).partial_fit(pictures(y), y)


# ------------------------------------------------------------------ the bits of a run


def in_chunks(plan: Any, size: int, data_dir: Any = None) -> ocil.Classifier:
    """The batches of a run, task after task in chunks; the last of a task is smaller: flush."""
    found = data.load(plan.settings.data, data_dir)
    model = ocil.Classifier(plan.method, **to_mapping(plan.settings))
    waiting: list[int] = []
    for batch in Stream(found.train_labels, plan.settings).batches():
        waiting += batch.indices.tolist()
        while len(waiting) >= size or (batch.ends_task and waiting):
            part, waiting = waiting[:size], waiting[size:]
            model.partial_fit(found.train_images[part], found.train_labels[part])
        if batch.ends_task:
            model.flush()
    return model


@pytest.mark.parametrize("size", [1, 10, 100])
@pytest.mark.parametrize(
    ("method", "order"), [("er", "split"), ("otc", "split"), ("joint", "joint")]
)
def test_chunks_of_any_size_give_the_state_of_the_run(
    plan: Callable[..., Any], tmp_path: Any, method: str, order: str, size: int
) -> None:
    whole = plan(method, order=order)
    wanted = start_run(whole, tmp_path / "run")["state_sha256"]
    assert in_chunks(whole, size).state_sha256() == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "mnist"])
@pytest.mark.parametrize("method", ["otc", "joint"])
def test_chunks_give_the_state_of_a_whole_run(tmp_path: Any, method: str, name: str) -> None:
    from ocil.commands.run import plan_from_words

    if name != "digits" and not DATA:
        pytest.skip("set OCIL_DATA to the folder with mnist")
    place = Path(DATA) if DATA else None
    few = [] if name == "digits" else ["--limit-per-class", "100"]
    whole, _ = plan_from_words(method, ["--data", name, "--eval-every", "0", *few])
    wanted = start_run(whole, tmp_path / "run", data_dir=place)["state_sha256"]
    for size in (1, 10, 100):
        assert in_chunks(whole, size, place).state_sha256() == wanted


def test_pending_samples_are_state_and_flush_learns_them(tmp_path: Any) -> None:
    model = fed()
    assert model.pending_ == 3
    assert sum(model.counts_.values()) == 30
    before = model.state_sha256()
    model.predict(pictures([0, 1]))
    model.predict_proba(pictures([0, 1]))
    assert model.state_sha256() == before
    model.save(tmp_path / "a.ocil")
    again = ocil.load(tmp_path / "a.ocil")
    assert again.pending_ == 3
    assert again.state_sha256() == before
    assert model.flush().state_sha256() == again.flush().state_sha256() != before
    assert model.pending_ == 0


def test_one_class_and_no_class() -> None:
    model = ocil.Classifier("er", **SMALL)
    with pytest.raises(OcilError, match="not fitted yet"):
        model.predict(pictures([0]))
    model.partial_fit(pictures([5] * 9), [5] * 9)
    with pytest.raises(OcilError, match="9 samples are pending"):
        model.predict(pictures([0]))
    model.flush()
    assert model.predict(pictures([1, 5])).tolist() == [5, 5]
    assert model.predict_proba(pictures([1])).tolist() == [[1.0]]


def test_classes_grow_and_stay_in_order_of_arrival() -> None:
    model = ocil.Classifier("er", **SMALL)
    for label in ("b", "a", "c"):
        model.partial_fit(pictures([label] * 10), [label] * 10)
    assert model.classes_.tolist() == ["b", "a", "c"]
    shares = model.predict_proba(pictures(["a"] * 4))
    assert shares.shape == (4, 3)
    assert np.allclose(shares.sum(1), 1)
    assert model.counts_ == {"b": 10, "a": 10, "c": 10}


# ------------------------------------------------------------------ what X may be


@pytest.mark.parametrize("channels", [1, 3])
def test_layouts_and_libraries_give_the_same_state(channels: int) -> None:
    y = [0, 1] * 10
    last = np.repeat(pictures(y)[..., None], channels, 3)
    first = np.moveaxis(last, 3, 1)
    forms = [last, first, torch.from_numpy(last.copy()), torch.from_numpy(first.copy())]
    forms += [pictures(y)] if channels == 1 else []
    sums = {
        ocil.Classifier("er", net="mlp", **SMALL).partial_fit(x, y).state_sha256() for x in forms
    }
    assert len(sums) == 1


def test_where_channels_are_must_be_said_if_it_is_not_clear() -> None:
    x = np.zeros((10, 3, 8, 3), np.uint8)
    with pytest.raises(OcilError, match="channels='first'"):
        ocil.Classifier("er", **SMALL).partial_fit(x, [0] * 10)
    model = ocil.Classifier("er", channels="last", net="mlp", **SMALL).partial_fit(x, [0] * 10)
    assert model.n_features_in_ == 72
    assert model.predict(x[:2]).tolist() == [0, 0]


def test_auto_chooses_by_what_the_items_are() -> None:
    y = [0, 1] * 5
    for x, net, augment in (
        (np.eye(10, dtype=np.float64), "mlp", "none"),
        (pictures(y), "mlp", "affine"),
        (np.zeros((10, 3, 8, 8), np.uint8), "resnet18", "full"),
        (np.zeros((10, 1, 40, 40), np.uint8), "resnet18-global", "affine"),
    ):
        model = ocil.Classifier("er", memory=5, width=4, replay=0).partial_fit(x, y)
        assert model._learned is not None
        assert (model._learned.session.settings.net, model._learned.session.settings.augment) == (
            net,
            augment,
        )


class Backbone(torch.nn.Module):
    def __init__(self, fails_on: float = 2.0) -> None:
        super().__init__()
        self.layer, self.norm = torch.nn.Linear(64, 12), torch.nn.BatchNorm1d(12)
        self.dropout, self.fails_on = torch.nn.Dropout(0.3), fails_on

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.max()) > self.fails_on:
            raise ValueError("too bright")
        return self.dropout(self.norm(self.layer(x.flatten(1))))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("method", ["er", "otc"])
def test_a_module_of_ones_own(tmp_path: Any, method: str, frozen: bool) -> None:
    torch.manual_seed(3)
    net = Backbone().requires_grad_(not frozen)
    ours = {k: v.clone() for k, v in net.state_dict().items()}
    y = [0, 1, 2] * 11
    torch.manual_seed(7)
    model = ocil.Classifier(method, net=net, **SMALL).partial_fit(pictures(y), y)
    follows = torch.rand(())
    torch.manual_seed(7)
    assert torch.equal(follows, torch.rand(()))  # the global generator was not used
    assert all(torch.equal(v, ours[k]) for k, v in net.state_dict().items())
    assert model._learned is not None
    trained = model._learned.session.learner.model.net.module.state_dict()
    assert all(torch.equal(v, ours[k]) for k, v in trained.items()) == frozen
    model.save(tmp_path / "a.ocil")
    with pytest.raises(OcilError, match="a module of its own as net, give it with net=module"):
        ocil.load(tmp_path / "a.ocil")
    again = ocil.load(tmp_path / "a.ocil", net=Backbone())
    for each in (model, again):
        each.partial_fit(pictures(y, 1), y)
    assert again.state_sha256() == model.state_sha256()


def test_a_module_that_fails_changes_nothing() -> None:
    y = [0, 1] * 10
    model = ocil.Classifier("er", net=Backbone(fails_on=0.95), **SMALL)
    model.partial_fit(pictures(y), y)
    before = model.state_sha256()
    bright = pictures(y)
    bright[13] = 255
    with pytest.raises(OcilError, match=r"module given as net fails .*too bright"):
        model.partial_fit(bright, [7] * 20)
    assert model.state_sha256() == before
    assert model.classes_.tolist() == [0, 1]


# ------------------------------------------------------------------ bad input

GOOD = pictures([0, 1, 2, 3] * 3)
LABELS = [0, 1, 2, 3] * 3
numbers = st.sampled_from([np.nan, np.inf, -np.inf, 1e30])


def changed(value: Any) -> np.ndarray:
    x = GOOD.astype(np.float64) / 255
    x[5, 3, 3] = value
    return x


bad_calls = st.one_of(
    st.tuples(st.sampled_from([(3, 9, 8), (3, 8, 7), (3, 64), (3, 2, 2, 2), (3,), ()]
              ).map(lambda shape: np.zeros(shape, np.uint8)), st.just([0, 1, 2])),
    st.tuples(numbers.map(changed), st.just(LABELS)),
    st.tuples(st.sampled_from([GOOD[:0], GOOD.astype(np.int64), GOOD.astype(np.float32), "a", None,
                               GOOD.astype(complex), [[1], [2, 3]], np.array([["a"] * 8] * 8),
                               {"a": 1}, GOOD.astype(object), torch.zeros(2, 8, 8).to_sparse()]),
              st.just(LABELS)),
    st.tuples(st.just(GOOD), st.one_of(
        st.none(), st.just(LABELS[:-1]), st.just([*LABELS, 1]), st.just("012301230123"), st.just(5),
        st.lists(st.sampled_from([7, "x"]), min_size=12, max_size=12).filter(lambda y: "x" in y),
        st.lists(st.sampled_from([7, 0.5, 1.0, np.nan, None, True, b"", (1,), 2**70, "\0", "\ud800",
                                  "x" * 2000]), min_size=12, max_size=12)
        .filter(lambda y: set(map(str, y)) != {"7"}))),
)  # fmt: skip


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls=st.lists(bad_calls, min_size=10, max_size=10), at=st.integers(0, 9))
def test_malformed_calls_between_good_ones_change_nothing(calls: list[Any], at: int) -> None:
    """20 examples of 10 calls: 200 malformed ones."""
    model = ocil.Classifier("er", **SMALL).partial_fit(GOOD, LABELS)
    for i, (x, y) in enumerate(calls):
        with pytest.raises(OcilError):
            (model.score if i % 4 == 3 else model.partial_fit)(x, y)
        if i == at:
            model.partial_fit(GOOD, LABELS)
    only_good = ocil.Classifier("er", **SMALL).partial_fit(GOOD, LABELS).partial_fit(GOOD, LABELS)
    assert model.state_sha256() == only_good.state_sha256()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30, 1e300])
def test_values_that_would_poison_the_weights_are_refused(value: float) -> None:
    x = GOOD / 255.0
    model = ocil.Classifier("er", **SMALL).partial_fit(x, LABELS)
    before = model.state_sha256()
    for call in (
        lambda: model.partial_fit(changed(value), LABELS),
        lambda: model.predict(changed(value)),
    ):
        with pytest.raises(OcilError, match=r"NaN or infinite|scale your data"):
            call()
    assert model.state_sha256() == before


def test_a_first_call_that_cannot_be_leaves_the_classifier_as_new() -> None:
    model = ocil.Classifier("er", **(SMALL | {"memory": 10**13}))
    model.partial_fit(GOOD[:4], LABELS[:4])  # these only wait
    before = model.state_sha256()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            model.partial_fit(GOOD, LABELS)
        assert not model.__sklearn_is_fitted__()
        assert model.pending_ == 4
    model.set_params(memory=20).partial_fit(GOOD[4:], LABELS[4:])
    twin = ocil.Classifier("er", **SMALL).partial_fit(GOOD, LABELS)
    assert model.state_sha256() == twin.state_sha256() != before


def test_a_step_that_breaks_half_way_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fed()
    before = model.state_sha256()
    assert model._learned is not None
    monkeypatch.setattr(model._learned.session.learner, "optimizer_step", lambda loss: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.partial_fit(GOOD, LABELS)
    assert model.state_sha256() == before
    assert model.partial_fit(GOOD, LABELS).state_sha256() != before


def test_a_model_that_cannot_go_back_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fed()
    assert model._learned is not None
    monkeypatch.setattr(model._learned.session.learner, "optimizer_step", lambda loss: 1 / 0)
    monkeypatch.setattr("ocil.session.MAX_COPIED", 1000)
    with pytest.raises(ZeroDivisionError):
        model.partial_fit(GOOD, LABELS)
    uses = [lambda: model.partial_fit(GOOD, LABELS), model.flush, lambda: model.save("x")]
    for use in (*uses, lambda: model.predict(GOOD), lambda: copy.deepcopy(model)):
        with pytest.raises(OcilError, match="failed half-way in an earlier call"):
            use()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"method": "ootc"}, "Unknown method 'ootc'"),
        ({"memory": 0}, "memory is 0 but must be at least 1"),
        ({"net": "mpl"}, "no network 'mpl'"),
        ({"lrr": 1.0}, "Unknown setting 'lrr'"),
        ({"channels": "middle"}, "channels is 'middle'"),
    ],
)
def test_bad_parameters_are_said_when_learning_starts(given: dict[str, Any], said: str) -> None:
    model = ocil.Classifier(**({"method": "er"} | given))
    x = GOOD[..., None] if "channels" in given else GOOD
    with pytest.raises(OcilError, match=said):
        model.partial_fit(x, LABELS)


def test_ctrl_c_waits_for_the_end_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model, twin = fed(), fed()
    assert model._learned is not None
    learn = model._learned.session.learner.learn

    def interrupted(batch: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return learn(batch)

    monkeypatch.setattr(model._learned.session.learner, "learn", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="10 of 20 samples"):
            model.partial_fit(pictures([0] * 17), [0] * 17)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    twin.partial_fit(pictures([0] * 17)[:7], [0] * 7)
    assert model.state_sha256() == twin.state_sha256()  # a whole step, and no more


# ------------------------------------------------------------------ conventions

METHODS = ("otc", "er", "slda")
NOT_HELD = {
    "check_dataframe_column_names_consistency": "names must match, no warning without names",
    "check_sample_weight_equivalence_on_dense_data": "it compares orders, which matter in a stream",
}


@pytest.mark.parametrize("given", [{"anchor_width": 50}, {}, {"width": 50}], ids=METHODS)
def test_scikit_learns_own_checks(given: dict[str, int], request: pytest.FixtureRequest) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    model = ocil.Classifier(request.node.callspec.id, **given)  # pyright: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not inherit from BaseEstimator
        results = check_estimator(
            model, expected_failed_checks=NOT_HELD, on_fail=None, on_skip=None
        )
    failed = [f"{r['check_name']}: {r['exception']}" for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("method", ["er", "slda"])
def test_a_weight_says_how_often_a_sample_is_learned(method: str) -> None:
    weights = np.arange(len(GOOD)) % 4
    y = np.arange(len(GOOD)) % 2
    given = SMALL if method == "er" else {"memory": None, "net": "identity"}
    model = ocil.Classifier(method, **given).partial_fit(GOOD, y, sample_weight=weights)
    twin = ocil.Classifier(method, **given).partial_fit(GOOD.repeat(weights, 0), y.repeat(weights))
    assert model.state_sha256() == twin.state_sha256()
    once = ocil.Classifier(method, **given).fit(GOOD, y, sample_weight=1.0)
    assert once.state_sha256() == ocil.Classifier(method, **given).fit(GOOD, y).state_sha256()


@pytest.mark.parametrize("weights", [[1], [0] * 12, [0.5] * 12, [-1] * 12, ["a"] * 12, [1e9] * 12])
def test_weights_that_are_none(weights: Any) -> None:
    model, y = ocil.Classifier("er", **SMALL), np.arange(12) % 2
    with pytest.raises(OcilError, match="sample_weight"):
        model.partial_fit(GOOD[:12], y, sample_weight=weights)
    assert model._learned is None


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([2.0, 1.0], "f"), (np.array([2, 1], np.float32), "f"), ([True, False], "b"), ([2, 1], "i")],
)
def test_labels_keep_their_kind(tmp_path: Path, labels: Any, kind: str) -> None:
    model = ocil.Classifier("er", **SMALL).partial_fit(GOOD, np.tile(labels, 6)).flush()
    model.save(tmp_path / "m.ocil")
    for one in (model, ocil.load(tmp_path / "m.ocil")):
        assert one.classes_.tolist() == list(labels)
        assert one.predict(GOOD).dtype.kind == one.classes_.dtype.kind == kind
        with pytest.raises(OcilError, match=r"several kinds \(.* and str\)"):
            one.partial_fit(GOOD[:1], ["x"])


def test_a_column_of_labels_is_taken_with_scikit_learns_warning() -> None:
    from sklearn.exceptions import DataConversionWarning

    model = ocil.Classifier("er", **SMALL)
    with pytest.warns(DataConversionWarning, match="column-vector") as caught:
        model.partial_fit(GOOD, np.array(LABELS)[:, None])
    assert model.classes_.tolist() == [0, 1, 2, 3]
    assert len(caught) == 1


@pytest.mark.parametrize("given", [{"method": "otc"}, {"method": "knn"}, {"method": "logistic"},
                                   {"method": "otc", "net": "identity"}])  # fmt: skip
def test_answers_do_not_depend_on_what_else_is_asked(given: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(size=(130, 20)).astype(np.float32)
    model = ocil.Classifier(**given).partial_fit(x, np.arange(130) % 5)
    whole = model.predict_proba(x)
    for size in (1, 2, 3, 7, 31):
        parts = [model.predict_proba(x[i : i + size]) for i in range(0, 130, size)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_parameters_clone_and_pickle() -> None:
    from sklearn.base import clone

    model = fed(seed=3)
    params = model.get_params()
    assert params == {"method": "er", "net": "auto", "seed": 3, "augment": "auto",
                      "effort": "auto", "scale": True, "channels": "auto"} | SMALL  # fmt: skip
    fresh = clone(model)
    assert fresh.get_params() == params
    assert not fresh.__sklearn_is_fitted__()
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin.state_sha256() == model.state_sha256()
        assert twin.get_params() == params
    assert "seed=3" in repr(model)


def test_in_a_pipeline() -> None:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    draw = np.random.default_rng(0)
    y = np.array(["low", "high"] * 100)
    x = draw.normal(size=(200, 5)) * 3 + 40 * (y == "high")[:, None]
    pipe = make_pipeline(StandardScaler(), ocil.Classifier("er", memory=50, lr=1e-2, ema=0.0))
    assert pipe.fit(x, y).score(x, y) > 0.95


def test_one_sample_at_a_time_as_in_river() -> None:
    model = ocil.Classifier("er", lr=1e-2, memory=50, ema=0.0)
    assert model.predict_one({"a": 0.0, "b": 1.0}) is None
    assert model.predict_proba_one({"a": 0.0, "b": 1.0}) == {}
    for i in range(200):
        model.learn_one({"b": float(i % 2 == 0), "a": float(i % 2)}, ["even", "odd"][i % 2])
    assert model.predict_one({"a": 1.0, "b": 0.0}) == "odd"
    assert set(model.predict_proba_one({"a": 1.0, "b": 0.0})) == {"even", "odd"}
    with pytest.raises(OcilError, match="feature names should match"):
        model.learn_one({"a": 1.0, "c": 0.0}, "odd")


def test_importing_the_classifier_loads_no_scikit_learn() -> None:
    code = "import sys, ocil; ocil.Classifier(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys, ocil; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ------------------------------------------------------------------ many classes


def test_many_classes_of_features_are_told_apart_and_no_head_grows() -> None:
    """bench/many_classes.py in small."""
    draw = np.random.default_rng(0)
    centres = draw.standard_normal((200, 32))
    y = np.arange(200).repeat(20)
    x = centres[y] + 1.2 * draw.standard_normal((len(y), 32))
    tests = draw.integers(200, size=1000)
    test_x = centres[tests] + 1.2 * draw.standard_normal((1000, 32))
    model = ocil.Classifier("otc", memory=400, net="identity", jury=False).partial_fit(x, y)
    means = x.reshape(200, 20, 32).mean(1)
    oracle = ((test_x[:, None] - means) ** 2).sum(2).argmin(1) == tests
    assert 0.7 <= oracle.mean() <= 0.95
    assert model.score(test_x, tests) >= oracle.mean() - 0.02
    assert model._learned is not None
    learner = model._learned.session.learner
    assert learner.model.head.classes == 0
    assert learner.backbone_images == len(y)  # nothing is replayed
    assert "head" not in learner.readouts()


def test_columns_are_sorted_after_fit_and_in_order_of_arrival_after_partial_fit():
    x, y = _points([3, 1, 2, 1, 3, 2, 0, 0] * 5)
    fitted = ocil.Classifier("er", memory=20, lr=1e-2).fit(x, y)
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert (fitted.predict_proba(x).argmax(1) == y).mean() > 0.9  # as scikit-learn reads them
    streamed = ocil.Classifier("er", memory=20).partial_fit(x, y)
    assert streamed.classes_.tolist() == [3, 1, 2, 0]
    more, labels = _points([9, 5] * 5)
    assert fitted.partial_fit(more, labels).classes_.tolist() == [0, 1, 2, 3, 9, 5]


def _points(labels):
    y = np.array(labels)
    draw = np.random.default_rng(0)
    return (np.eye(10)[y] * 4 + draw.normal(size=(len(y), 10)) / 4).astype(np.float32), y


def test_channels_are_checked_for_vectors_too():
    x, y = _points([0, 1] * 5)
    with pytest.raises(OcilError, match="channels is 'foo'"):
        ocil.Classifier("er", channels="foo").fit(x, y)


def test_a_read_out_of_the_memory_is_not_saved_without_it(tmp_path: Path):
    x, y = _points([0, 1] * 10)
    model = ocil.Classifier("er", memory=20, readout="mean").fit(x, y)
    with pytest.raises(OcilError, match="answers by the means of the memory"):
        model.save(tmp_path / "m.ocil", memory=False)
    model.save(tmp_path / "m.ocil")


# ------------------------------------------------------------------ steps that ruin the weights


def _rate(model: ocil.Classifier, lr: float) -> None:
    """Another learning rate from the next step on."""
    assert model._learned is not None
    for group in model._learned.session.learner.optimizer.param_groups:
        group["lr"] = lr


@pytest.mark.parametrize("method", ["er", "otc", "cope", "scr"])
def test_a_step_that_ruins_the_weights_is_refused_and_undone(method: str) -> None:
    more = {"net": "mlp", "width": 16, "memory": 20, "replay": 8}
    model = ocil.Classifier(method, **more).partial_fit(GOOD, LABELS)
    twin = ocil.Classifier(method, **more).partial_fit(GOOD, LABELS)
    for x, y in ((GOOD[:5], LABELS[:5]), (GOOD, LABELS)):  # batches since the copy, pending ones
        model.partial_fit(x, y)
        twin.partial_fit(x, y)
    before, pending = model.state_sha256(), model.pending_
    _rate(model, 1e38)
    with pytest.raises(OcilError, match="Make a classifier with a lower lr"):
        model.partial_fit(np.concatenate([GOOD, pictures([9] * 10)]), [*LABELS, *([9] * 10)])
    assert (model.state_sha256(), model.pending_) == (before, pending)
    assert model.counts_ == twin.counts_
    assert np.isfinite(model.predict_proba(GOOD)).all()
    assert model.partial_fit(GOOD, LABELS).state_sha256() == (
        twin.partial_fit(GOOD, LABELS).state_sha256()
    )


@pytest.mark.parametrize("lr", [1e38, 1e30, 1e12])
def test_a_first_step_that_ruins_the_weights_is_refused(lr: float) -> None:
    model = ocil.Classifier("er", **(SMALL | {"lr": lr, "updates": 1}))
    with pytest.raises(OcilError, match=r"With lr 1e\+\d+ the size of the weights became"):
        model.partial_fit(GOOD[:10], LABELS[:10])
    assert not model.__sklearn_is_fitted__()


@pytest.mark.parametrize("copies", [2, 100])
def test_the_way_back_leads_over_copies_and_long_calls(
    monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    monkeypatch.setattr("ocil.session.EVERY", copies)
    model, twin = fed(), fed()
    for count in (10, 10, 40, 7, 10):
        model.partial_fit(GOOD[:count].repeat(2, 0), LABELS[:count] * 2)
        twin.partial_fit(GOOD[:count].repeat(2, 0), LABELS[:count] * 2)
        assert model._learned is not None
        monkeypatch.setattr(model._learned.session.learner, "optimizer_step", lambda loss: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.partial_fit(GOOD, LABELS)
        assert model.state_sha256() == twin.state_sha256()


# ------------------------------------------------------------------ parameters set after learning


def test_a_file_holds_what_was_learned_whatever_was_set_since(tmp_path: Path) -> None:
    x, y = np.repeat(pictures([0, 1] * 5)[..., None], 3, 3), [0, 1] * 5
    for net, other in ((Backbone(), "mlp"), ("mlp", Backbone())):
        model = ocil.Classifier("er", **(SMALL | {"net": net, "channels": "last"}))
        model.partial_fit(x[..., :1] if net != "mlp" else x, y)
        fitted = model.state_sha256()
        model.set_params(net=other, channels="middle", method="otc", memory=3, lr=-1)
        model.save(tmp_path / "m.ocil")
        again = ocil.load(tmp_path / "m.ocil", net=net if net != "mlp" else None)
        assert again.state_sha256() == fitted
        assert again.get_params() | SMALL == again.get_params()
        assert (again.method, again.channels, again.net) == ("er", "last", net)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert twin.state_sha256() == fitted
            assert twin.channels == "middle" and twin.get_params()["lr"] == -1
        assert len(model.predict(x[..., :1] if net != "mlp" else x)) == 10


def test_renamed_columns_are_refused_when_predicting() -> None:
    class Frame:
        def __init__(self, *names: str) -> None:
            self.columns = list(names)

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return _points([0, 1] * 5)[0][:, : len(self.columns)]

    model = ocil.Classifier("er", memory=20).partial_fit(Frame("a", "b"), [0, 1] * 5)
    assert len(model.predict(Frame("a", "b"))) == 10
    with pytest.raises(OcilError, match="feature names should match"):
        model.predict(Frame("b", "a"))
    with pytest.raises(OcilError, match="feature names should match"):
        model.partial_fit(Frame("a", "c"), [0, 1] * 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_process_predicts_though_its_parent_used_two_threads() -> None:
    program = """
import os, numpy as np, torch, ocil
torch.set_num_threads(2)
x = np.random.default_rng(0).normal(size=(1000, 400))
model = ocil.Classifier("er", memory=20).partial_fit(x[:20], [0, 1] * 10)
model.predict(x)
child = os.fork()
if not child:
    os._exit(0 if len(model.predict(x)) == 1000 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    words = [sys.executable, "-W", "ignore", "-c", program]
    threads = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
    child = subprocess.Popen(words, env=os.environ | threads, process_group=0)
    try:
        assert child.wait(120) == 0
    finally:
        if child.returncode is None:  # it hangs, and its child too
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def test_the_memory_holds_500_unless_told() -> None:
    assert ocil.Classifier().memory == 500


@pytest.mark.parametrize("chosen", [{"dual": {"eps": 0.3}}, {"dual.eps": 0.3}])
@pytest.mark.parametrize("net", ["mlp", "identity"])
def test_options_of_a_group_are_given_saved_and_changed(
    tmp_path: Path, net: str, chosen: dict[str, Any]
) -> None:
    x, y = np.random.default_rng(0).random((40, 6), dtype=np.float32), np.arange(40) % 3
    model = ocil.Classifier("otc", net=net, objective="dual", **chosen).partial_fit(x, y)
    model.save(tmp_path / "a.ocil")
    loaded = ocil.load(tmp_path / "a.ocil")
    assert loaded.state_sha256() == model.state_sha256()
    assert loaded.get_params()["dual.eps"] == 0.3
    other = type(loaded)(**loaded.get_params()).set_params(**{"dual.eps": 0.5})
    assert other.get_params()["dual.eps"] == 0.5
    with pytest.raises(OcilError, match=r"dual\.eps has no effect with objective = sinkhorn"):
        ocil.Classifier("otc", **chosen).partial_fit(x, y)
