"""OTC: what enters the memory, what is read, and what it costs."""

from __future__ import annotations

import pytest
import torch

from ocil import checks
from ocil.errors import OcilError
from ocil.learners.otc import Otc
from ocil.mixture import distances


@pytest.mark.parametrize("preset", ["paper", "paper-literal-0.1"])
def test_the_papers_presets_learn(preset):
    session = checks.make(Otc, **Otc.presets[preset] | {"lr": 5e-3})
    checks.feed(session, checks.TWO_TASKS, batches=60)
    labels = session.labels.encode([0, 2] * 8)  # of the last task, which a flooded memory keeps
    for name in session.learner.readouts():
        scores = session.learner.scores(checks.images([0, 2] * 8), name)
        assert scores.shape == (16, 4)
        assert not scores.isnan().any()
    right = session.learner.scores(checks.images([0, 2] * 8), "head").argmax(1)
    assert (right == torch.tensor(labels)).float().mean() > 0.9


def test_without_dynamic_preservation_there_is_no_pass_for_it():
    assert not checks.make(Otc, fused=False, preserve=0.0).learner.preserves_apart
    assert checks.make(Otc, fused=False, preserve=0.1).learner.preserves_apart


@pytest.mark.parametrize("extra", [{}, {"updates": 3}, {"preserve": 0.0}])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_gradient_steps_of_the_record_are_those_taken(preset, extra):
    session = checks.make(Otc, **Otc.presets[preset] | extra)
    taken, take = [], session.learner.optimizer_step
    session.learner.optimizer_step = lambda loss: taken.append(loss) or take(loss)
    checks.feed(session, [(0, 1)], batches=7)
    assert len(taken) == 7 * session.learner.gradient_steps


def test_a_look_inside_measures_what_the_memory_holds():
    session = checks.make(Otc, memory=90)
    checks.feed(session, checks.TWO_TASKS, batches=4)  # 48 images: it has room left
    learner, mixtures = session.learner, session.learner.mixtures
    told = learner.diagnose(checks.images([0, 1]), torch.tensor([0, 1]))
    kept = learner.memory.read(range(48))
    wanted = mixtures.own_class_distances(learner.encode_latent(kept["x"]), kept["y"])
    found = told["own_class_distance"]["replayed"]
    assert [found["components"], found["single"]] == pytest.approx(wanted.tolist(), abs=2e-6)


@pytest.mark.parametrize("preset", ["default", "paper", "paper-literal-0.1"])
def test_a_look_inside_keeps_no_graph_and_no_trace(preset):
    session = checks.make(Otc, **Otc.presets[preset])
    checks.feed(session, checks.TWO_TASKS, batches=8)
    made, encode = [], session.learner.encode
    session.learner.encode = lambda *a: made.append(encode(*a)) or made[-1]
    before = session.state().sha256()
    found = session.learner.diagnose(checks.images([3, 1]), torch.tensor([0, 1]))
    assert found["own_class_distance"]["replayed"]["components"] > 0
    assert len(made) == 2 and not any(z.requires_grad for z in made)
    assert session.state().sha256() == before


SHARED = {"dual.phi": "shared", "start.points": 4, "features": "raw", "admission": "printed"}


@pytest.mark.parametrize(
    ("preset", "more"),
    [("default", {}), ("paper", {}), ("paper", SHARED), ("paper-literal-0.1", {})],
)
def test_every_preset_resumes_to_the_same_bits(preset, more):
    given = Otc.presets[preset] | more
    first, second = (checks.make(Otc, **given) for _ in range(2))
    checks.feed(first, [(0, 1)], batches=10)
    state = first.state()
    copied = {k: v.detach().clone() for k, v in state.tensors.items()}
    second.load(type(state)(copied, dict(state.scalars)))
    for session in (first, second):
        checks.feed(session, [(2, 0)], batches=6)
    assert first.state().sha256() == second.state().sha256()


def test_drift_is_measured_from_the_moment_before_new_classes_came():
    session = checks.make(Otc)
    checks.feed(session, [(0, 1)])
    inside, store = session.learner.inside, session.learner.mixtures.store
    before = [store[name].clone() for name in ("mu", "var", "log_pi")]
    checks.go_on(session, 1, (2, 3), range(4))
    for noted, was in zip(inside.before, before, strict=True):
        assert torch.equal(noted, was)
    assert len(inside.describe({})["drift"]) == 2


def test_features_that_never_change_are_looked_into_as_well():
    session = checks.make(Otc, net="identity", ema=0.0)
    checks.feed(session, checks.TWO_TASKS, batches=8)
    found = session.learner.diagnose(checks.images([3, 1]), torch.tensor([0, 1]))
    assert found["own_class_distance"]["arrival"]["components"] > 0
    assert len(found["drift"]) >= 2


def test_settings_out_of_range_are_refused_by_their_own_name():
    wrong = {"tau": 0, "preserve": -1, "distill": float("nan"), "mixture_replay": 0,
             "dual.eps": float("inf"), "dual.floor": float("inf"), "dual.descents": 0}  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(OcilError, match=f"^Setting {name} is .* but must be (at least|above)"):
            checks.small_settings(Otc, **{"objective": "dual", name: value})
    with pytest.raises(OcilError, match="leaves nothing to choose at random"):
        checks.small_settings(Otc, admission="closest", choice="random")


def test_no_ridge_is_no_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distances, "RIDGE", 1e-5)
    session = checks.make(Otc)
    checks.feed(session, checks.TWO_TASKS, batches=4)
    scores = session.learner.scores(checks.images([3, 1, 0, 2]), "mahalanobis-full")
    assert scores.isfinite().all()


def test_the_literal_memory_floods_and_the_reservoir_does_not():
    shares = {}
    for admission in ("closest", "reservoir"):
        session = checks.make(Otc, admission=admission, components=2, choice="centroids")
        checks.feed(session, ((0, 1), (2, 3), (4, 5)), batches=40)
        kept = session.learner.memory.columns["y"][:20].tolist()
        shares[admission] = sum(label >= 4 for label in kept) / 20
    assert shares["closest"] > 0.8
    assert shares["reservoir"] < 0.7


def test_centroid_choice_only_changes_which_points_enter():
    written, kept = {}, {}
    for choice in ("centroids", "components", "random"):
        session = checks.make(Otc, choice=choice)
        memory = session.learner.memory
        slots, write = written.setdefault(choice, []), memory.write
        memory.write = lambda s, *a, slots=slots, write=write: (
            slots.append(sorted(s)),
            write(s, *a),
        )
        checks.feed(session, checks.TWO_TASKS)
        kept[choice] = memory.columns["x"].flatten().tolist()
    # as many enter, and the same leave, batch by batch; what enters differs
    assert len(written["random"]) == 16
    assert written["centroids"] == written["components"] == written["random"]
    assert kept["centroids"] != kept["random"] != kept["components"]


def test_images_through_the_backbone():
    # 6 of the stream and 20 replayed: one fused pass and one for the mixtures
    session = checks.make(Otc, memory=20)
    checks.feed(session, ((0, 1),), batches=20)
    before = session.learner.backbone_images
    checks.feed(session, ((0, 1),), batches=1)
    assert session.learner.backbone_images - before == 2 * 26
    apart = checks.make(Otc, memory=20, fused=False)
    checks.feed(apart, ((0, 1),), batches=20)
    before = apart.learner.backbone_images
    checks.feed(apart, ((0, 1),), batches=1)
    assert apart.learner.backbone_images - before == 3 * 26


def test_the_mixtures_may_watch_a_part_of_the_replay():
    session = checks.make(Otc, memory=20, mixture_replay=5, retrieval="balanced", distill=0.0)
    checks.feed(session, checks.TWO_TASKS, batches=20)
    learner = session.learner
    before, points = learner.backbone_images, learner.mixtures.store.host("count").copy()
    checks.feed(session, ((0, 1),), batches=1)  # 6 of the stream, 20 replayed
    assert learner.backbone_images - before == 26 + 11
    more = learner.mixtures.store.host("count") - points
    assert more.sum() == 11 and (more >= 1).all()  # four classes, of five watched each has one


def test_read_outs_agree_with_the_mixtures():
    session = checks.make(Otc, shrinkage=0.0)
    checks.feed(session, checks.TWO_TASKS, batches=20)
    learner = session.learner
    x = checks.images([0, 1, 2, 3])
    z = torch.nn.functional.normalize(learner.encode(learner.latent, x), dim=1)
    mu, var = learner.mixtures.mu, learner.mixtures.var
    for i in range(4):
        for c in range(4):
            distance = ((z[i] - mu[c]) ** 2 / var[c]).sum(1)[learner.mixtures.active[c]].min()
            found = -learner.scores(x, "mahalanobis")[i, c]
            # the read-out expands the square for speed, which costs digits where var is small
            lost = 1e-6 * float((z[i] ** 2 / var[c]).sum(1).max())
            assert float(found) == pytest.approx(float(distance), rel=1e-2, abs=lost)


def test_the_product_of_two_readings_needs_a_head():
    session = checks.make(Otc)
    checks.feed(session, checks.TWO_TASKS, batches=12)
    learner, x = session.learner, checks.images([0, 1, 2, 3])
    names = ("ema-head", "similarity", "product")
    head, similar, product = (learner.scores(x, name).softmax(1).double() for name in names)
    assert (head - similar).abs().max() > 0.01  # or the product would not be told from either
    both = head * similar
    torch.testing.assert_close(product, both / both.sum(1, keepdim=True), rtol=1e-4, atol=1e-6)
    assert "product" not in checks.make(Otc, net="identity", ema=0.0).learner.readouts()


def test_one_gaussian_a_class_with_a_shared_covariance_is_a_linear_discriminant():
    session = checks.make(Otc)
    checks.feed(session, checks.TWO_TASKS, batches=20)
    learner = session.learner
    x = checks.images([0, 1, 2, 3, 3, 1])
    z = torch.nn.functional.normalize(learner.encode(learner.latent, x), dim=1).double()
    shared = learner.pooled.covariance.double()
    shared = 0.9 * shared + 0.1 * shared.diagonal().mean() * torch.eye(len(shared))
    mean = learner.mixtures.merged()[0].double()
    slopes = torch.linalg.solve(shared, mean.T)  # (d, C)
    expected = z @ slopes - 0.5 * (mean.T * slopes).sum(0)
    found = learner.scores(x, "mahalanobis-full-1").double() / 2
    # up to what all classes of an image have in common
    torch.testing.assert_close(
        found - found[:, :1], expected - expected[:, :1], rtol=1e-3, atol=1e-2
    )
    assert (expected - expected[:, :1]).abs().max() > 1


def test_the_euclidean_read_out_asks_the_closest_centroid():
    session = checks.make(Otc, readout="euclidean", components=2, **{"start.points": 4})
    checks.feed(session, checks.TWO_TASKS, batches=6)
    one, x = session.learner, checks.images([0, 1, 2, 3])
    z = torch.nn.functional.normalize(one.encode(one.latent, x), dim=1)
    scores, mixtures = one.scores(x, "euclidean"), one.mixtures
    assert bool((mixtures.active.sum(1) > 1).any())
    for i, c in ((i, c) for i in range(4) for c in range(one.classes)):
        gaps = [float((z[i] - mixtures.mu[c, k]).square().sum()) for k in range(2)]
        wanted = min(
            gap for gap, used in zip(gaps, mixtures.active[c].tolist(), strict=True) if used
        )
        assert float(scores[i, c]) == pytest.approx(-wanted, rel=1e-3, abs=1e-5)


def test_one_network_serves_all_classes():
    """It is trained at every batch and lies in the row of class 0, whoever comes first."""
    session = checks.make(Otc, **Otc.presets["paper"] | SHARED)
    checks.feed(session, checks.TWO_TASKS, batches=8)
    store = session.learner.mixtures.store
    assert store["phi.w1"][0].any() and not store["phi.w1"][1:].any()
    assert store["phi.w2"][0].any() and store.host("phi.steps")[0] > 3


@pytest.mark.parametrize(("redraw", "draws"), [(True, 3), (False, 1)])
def test_a_batch_has_one_draw_of_the_memory_or_one_an_update(redraw, draws):
    session = checks.make(Otc, updates=3, redraw=redraw)
    checks.feed(session, [(0, 1)], batches=3)
    memory, count = session.learner.memory, []
    real = memory.draw
    memory.draw = lambda *a: count.append(1) or real(*a)
    checks.go_on(session, 1, (2, 3), range(1))
    assert len(count) == draws
