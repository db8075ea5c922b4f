"""Every registered learner passes every check, and every check notices a learner that breaks it."""

from __future__ import annotations

import pytest
import torch

from ocil import checks
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.er import Er


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda c: c.__name__)
def test_registered_learners(method, check):
    check(registry.get(method))


class Idle(Er):
    def step(self, batch):
        return {}


class Clairvoyant(Er):
    def grow(self, classes):
        super().grow(10)


class Altering(Er):
    def step(self, batch):
        batch.x.zero_()
        return super().step(batch)


class GlobalNoise(Er):
    def augmented(self, x):
        return super().augmented(x) + torch.rand(())


class Deaf(Er):
    def __init__(self, settings, shape, generators):
        for generator in generators.values():
            generator.manual_seed(0)
        super().__init__(settings, shape, generators)


class Forgetful(Er):
    def state_dict(self, samples=True):
        return {k: v for k, v in super().state_dict().items() if not k.startswith("optimizer")}


class Uncounted(Er):
    """Learns by the number of batches since the task began, which it does not save."""

    batches, task = 0, None

    def step(self, batch):
        self.task, self.batches = batch.task, self.batches + 1 if batch.task == self.task else 0
        return super().step(batch) if self.batches != 6 else {}


def read_otherwise(learner, name, change):
    """The read-outs of a learner, with the scores of one changed."""
    own = Er.readouts(learner)
    return own | {name: own[name]._replace(scores=lambda f: change(own[name].scores(f)))}


class Drifting(Er):
    def readouts(self):
        def change(scores):
            self.backbone_images += 1
            return scores

        return read_otherwise(self, "head", change)


class LosingClasses(Er):
    def readouts(self):
        return read_otherwise(self, "ema-head", lambda scores: scores[:, :2])


class NotANumber(Er):
    def readouts(self):
        return read_otherwise(self, "mean", lambda scores: scores * torch.nan)


class Hoarder(Er):
    def step(self, batch):
        self.memory.capacity += 1
        return super().step(batch)


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Idle, checks.learns_from_any_label_order),
        (Clairvoyant, checks.never_sees_labels_in_advance),
        (Altering, checks.does_not_alter_its_input),
        (GlobalNoise, checks.same_seed_same_bits),
        (Deaf, checks.other_seed_other_bits),
        (Forgetful, checks.state_round_trips),
        (Forgetful, checks.resumes_within_a_task),
        (Uncounted, checks.resumes_within_a_task),
        (Drifting, checks.scores_change_nothing),
        (LosingClasses, checks.a_batch_of_one),
        (LosingClasses, checks.a_new_class_in_the_middle_of_a_task),
        (NotANumber, checks.a_class_that_never_comes_back),
        (Hoarder, checks.memory_smaller_than_the_replay_batch),
    ],
)
def test_a_broken_learner_is_noticed(kind, check):
    with pytest.raises((AssertionError, IndexError)):
        check(kind)


def test_what_is_lost_within_a_task_only_is_seen_within_a_task_only():
    checks.state_round_trips(Uncounted)


def test_a_method_written_the_old_way_is_told_what_to_change():
    said = "rename learn to step and leave out the call of self.meet"
    with pytest.raises(OcilError, match=said):

        class Old(Er):
            def learn(self, batch):
                return {}
