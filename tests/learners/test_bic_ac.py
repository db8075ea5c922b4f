"""Auxiliary classifiers: where they sit, what they read, what trains them, who answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ocil import nets
from ocil.learners.bic_ac import BicAc, Branch, Branched
from ocil.stream import Batch

Make = Callable[..., BicAc]
Batches = Callable[..., list[Batch]]


def branched(learner: BicAc) -> Branched:
    assert isinstance(learner.model, Branched)
    return learner.model


def test_every_block_of_the_resnet_in_turn() -> None:
    net = nets.build("resnet18", (3, 32, 32), width=2, generator=torch.Generator()).eval()
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = net.forward_blocks(x)  # type: ignore
    assert [tuple(h.shape[1:]) for h in found] == [
        *[(2, 32, 32)] * 2, *[(4, 16, 16)] * 2, *[(8, 8, 8)] * 2, (16, 4, 4), (16,),
    ]  # fmt: skip
    for block, stage in zip(found[1:7:2], net.forward_maps(x), strict=False):  # type: ignore
        assert torch.equal(block, stage)
    assert torch.equal(found[-1], net(x))


@pytest.mark.parametrize(
    ("shape", "net", "sizes"),
    [
        ((3, 32, 32), "resnet18", [512, 256, 256, 128, 128, 64]),
        ((1, 8, 8), "resnet18-global", [32, 16, 16, 8, 8, 16]),
        ((1, 4, 4), "mlp", [2]),
        ((7,), "identity", []),
    ],
)
def test_a_classifier_behind_each_inner_layer(
    learner: Make, shape: tuple[int, ...], net: str, sizes: list[int]
) -> None:
    ac = learner("bic-ac", shape=shape, net=net, width=2)
    assert [branch.head.features for branch in branched(ac).branches] == sizes  # type: ignore
    assert ac.classifiers == len(sizes) + 1
    x = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    ac.add_classes(torch.tensor([2]))
    ac.model.eval()
    z = ac.classified(ac.model, ac.forward_features(ac.model, x))
    assert z.shape == (ac.classifiers, 4, 3)
    torch.testing.assert_close(z[-1], ac.model(x))


def test_a_branch_pools_its_map_by_maximum_and_mean() -> None:
    branch = Branch((2, 3, 4), torch.Generator().manual_seed(1))
    h = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(2))
    a = branch.mix.item()
    assert 0 < a < 1
    wanted = []
    for c in range(2):
        for top in (0, 2):
            for left in (0, 2):
                window = h[0, c, top : top + 2, left : left + 2]  # one row is left at the end
                wanted.append(a * window.max().item() + (1 - a) * window.mean().item())
    torch.testing.assert_close(branch.pooled(h)[0], torch.tensor(wanted))


def test_each_classifier_reads_its_own_layer(learner: Make, batches: Batches) -> None:
    ac = learner("bic-ac")
    batch = batches(1)[0]
    ac.add_classes(batch.y)
    x = batch.x.float() / 255
    first, second = ac.model.net.forward_stages(x)  # type: ignore
    z = ac.classified(ac.model, ac.forward_features(ac.model, x))
    torch.testing.assert_close(z[0], branched(ac).branches[0].head(first))  # type: ignore
    torch.testing.assert_close(z[1], ac.model.head(second))


def test_gradients_reach_the_net_below_a_branch_and_nothing_above(learner: Make) -> None:
    ac = learner("bic-ac", shape=(3, 32, 32), net="resnet18", width=2)
    y = torch.tensor([0, 1, 1, 0])
    ac.add_classes(y)
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for i in range(ac.classifiers):
        ac.model.zero_grad()
        ac.loss(x, y, F.one_hot(torch.tensor(i), ac.classifiers).float()).backward()
        reached = {n for n, p in ac.model.named_parameters() if p.grad is not None and p.grad.any()}
        assert "net.conv.weight" in reached
        stage, block = divmod(i + 1, 2)
        assert any(n.startswith(f"net.stages.{stage}.{block}.") for n in reached)
        above = [f"net.stages.{s}.{b}." for s in range(4) for b in range(2) if 2 * s + b > i + 1]
        assert not any(n.startswith(tuple(above)) for n in reached)
        heads = {f"branches.{i}.head.weight", f"branches.{i}.head.bias", f"branches.{i}.mix"}
        wanted = heads if i < 6 else {"head.weight", "head.bias"}
        assert {n for n in reached if not n.startswith("net.")} == wanted


def test_the_loss_is_the_weighted_sum_over_classifiers(learner: Make, batches: Batches) -> None:
    ac = learner("bic-ac", memory=60)
    for n, batch in enumerate(batches(7)):
        if n % 3 == 0:
            ac.begin_task(n // 3)
        ac.learn(batch)
        if n % 3 == 2:
            ac.end_task(n // 3, batch.x, batch.y)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 1, 4, 4, generator=draw), torch.arange(8) % 6
    assert ac.teacher is not None
    z = ac.classified(ac.model, ac.forward_features(ac.model, x))
    wanted = ac.classified(ac.teacher, ac.forward_features(ac.teacher, x))
    total = torch.zeros(())
    for i, w in enumerate((0.25, 2.0)):
        alpha, beta = ac.bias["live"][:, i]
        mine, theirs = alpha * z[i] + beta, alpha[:4] * wanted[i] + beta[:4]
        q, log_p = (theirs / 2).softmax(1), (mine[:, :4] / 2).log_softmax(1)
        kd = (q * (q.log() - log_p)).sum(1).mean()
        total = total + w * (F.cross_entropy(mine, y) + 2.0 * kd)
    torch.testing.assert_close(ac.loss(x, y, torch.tensor([0.25, 2.0])), total)
    assert not torch.equal(ac.bias["live"][:, 0], ac.bias["live"][:, 1])  # a pair for each


def test_weights_are_a_ladder_and_rise_over_several_epochs(learner: Make, batches: Batches) -> None:
    ac = learner("bic-ac", shape=(3, 32, 32), net="resnet18", width=2, first=0.15)
    batch = batches(1)[0]
    end = torch.tensor([0.15, 0.30, 0.45, 0.60, 0.75, 0.90, 1.0])
    torch.testing.assert_close(ac.weights(batch), end)
    start = torch.tensor([0.01] * 6 + [1.0])
    for epoch, wanted in ((0, start), (1, (start + end) / 2), (2, end)):
        torch.testing.assert_close(ac.weights(replace(batch, epoch=epoch, epochs=3)), wanted)
    torch.testing.assert_close(learner("bic-ac").weights(batch), torch.tensor([0.6, 1.0]))
    still = learner("bic-ac", ramp=False).weights(replace(batch, epoch=0, epochs=3))
    torch.testing.assert_close(still, torch.tensor([0.6, 1.0]))


def test_the_surest_answers_and_the_last_one_is_bic(learner: Make, batches: Batches) -> None:
    ac = learner("bic-ac")
    for batch in batches(3):
        ac.learn(batch)
    assert ac.readout == "ema-confident"
    x = batches(4)[3].x
    assert ac.average is not None
    for prefix, space in (("", "live"), ("ema-", "average")):
        z = ac.corrected(ac.features(x), space)
        found = ac.scores(x, f"{prefix}confident")
        for n in range(len(x)):
            p = z[:, n].softmax(1)
            torch.testing.assert_close(found[n].exp(), p[p.amax(1).argmax()])
        torch.testing.assert_close(ac.scores(x, f"{prefix}corrected"), z[-1])


def test_the_head_that_is_read_is_the_last_of_many_classifiers(learner: Make) -> None:
    ac = learner("bic-ac", shape=(3, 32, 32), net="resnet18", width=2)
    ac.add_classes(torch.tensor([2]))
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = ac.scores(x, "head")
    torch.testing.assert_close(found, ac.model.eval()(x))
    corrected = ac.corrected(ac.features(x), "live")
    assert len(corrected) > 2
    torch.testing.assert_close(ac.scores(x, "corrected"), corrected[-1])


def test_the_initial_weights_follow_the_generator_alone(learner: Make) -> None:
    options = {"shape": (3, 32, 32), "net": "resnet18", "width": 2}
    one = learner("bic-ac", **options)
    torch.rand(5)
    two, other = learner("bic-ac", **options), learner("bic-ac", seed=4, **options)
    for ac in (one, two, other):
        ac.add_classes(torch.tensor([2]))
    weights = [torch.cat([p.flatten() for p in ac.model.parameters()]) for ac in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    mixes = [branched(ac).branches[0].mix for ac in (one, other)]
    assert not torch.equal(*mixes)  # type: ignore


def test_maps_in_16_bits_are_classified_in_32(learner: Make) -> None:
    options = {"shape": (3, 32, 32), "net": "resnet18", "width": 2, "precision": "bfloat16"}
    ac = learner("bic-ac", **options)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (6, 3, 32, 32), dtype=torch.uint8, generator=draw)
    ac.learn(Batch(x, torch.tensor([0, 1, 2, 0, 1, 2])))
    assert ac.scores(x).dtype == torch.float32
    assert ac.scores(x).isfinite().all()
