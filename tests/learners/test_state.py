"""What optimisers remember, saved under flat names and taken up by another one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from ocil.learners.parts import OptimizerState

Make = Callable[..., torch.optim.Optimizer]
KINDS = {
    "adam": partial(torch.optim.Adam, lr=0.1),
    "adamw": partial(torch.optim.AdamW, lr=0.1),
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}


def stepped(kind: Make) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimizer = kind([p])
    p.grad = torch.tensor([0.5, 3.0])
    optimizer.step()
    return p, optimizer


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_state_taken_up_elsewhere_gives_the_same_next_step(kind: Make) -> None:
    p, optimizer = stepped(kind)
    q = torch.nn.Parameter(p.detach().clone())
    other = kind([q])
    OptimizerState(other).load_state_dict(OptimizerState(optimizer).state_dict(), 0)
    for each, own in ((p, optimizer), (q, other)):
        each.grad = torch.tensor([-1.0, 0.2])
        own.step()
    assert torch.equal(p, q)


@pytest.mark.parametrize(("saved", "into"), [("adam", "sgd"), ("sgd", "adam")])
def test_a_state_of_another_kind_of_optimiser_is_refused(saved: str, into: str) -> None:
    state = OptimizerState(stepped(KINDS[saved])[1]).state_dict()
    other = KINDS[into]([torch.nn.Parameter(torch.zeros(2))])
    with pytest.raises(ValueError, match="the optimiser's state has"):
        OptimizerState(other).load_state_dict(state, 0)


def test_two_that_take_up_one_state_go_their_own_ways() -> None:
    state = OptimizerState(stepped(KINDS["adam"])[1]).state_dict()
    others = [stepped(KINDS["adam"]) for _ in range(2)]
    for _, other in others:
        OptimizerState(other).load_state_dict(state, 0)
    others[0][1].step()
    assert [float(other.state[p]["step"]) for p, other in others] == [2, 1]
    assert float(state["0.step"]) == 1
