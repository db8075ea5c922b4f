"""Every registered learner passes every check, and every check notices a learner that breaks it."""

from __future__ import annotations

import pytest
import torch

from ocil import checks
from ocil.learners import registry
from ocil.learners.er import Er


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda c: c.__name__)
def test_registered_learners(method, check):
    check(registry.get(method))


class Idle(Er):
    def learn(self, batch):
        self.meet(batch.y)
        return {}


class Clairvoyant(Er):
    def meet(self, y):
        super().meet(torch.tensor([9]))


class Altering(Er):
    def learn(self, batch):
        batch.x.zero_()
        return super().learn(batch)


class GlobalNoise(Er):
    def augmented(self, x):
        return super().augmented(x) + torch.rand(())


class Deaf(Er):
    def __init__(self, settings, shape, generators):
        for generator in generators.values():
            generator.manual_seed(0)
        super().__init__(settings, shape, generators)


class Forgetful(Er):
    def state_dict(self):
        return {k: v for k, v in super().state_dict().items() if not k.startswith("optimizer")}


class Uncounted(Er):
    """Learns by the number of batches since the task began, which it does not save."""

    batches, task = 0, None

    def learn(self, batch):
        self.task, self.batches = batch.task, self.batches + 1 if batch.task == self.task else 0
        return super().learn(batch) if self.batches != 6 else {}


class Drifting(Er):
    def read_head(self, model, features):
        self.backbone_images += 1
        return super().read_head(model, features)


class LosingClasses(Er):
    def read_head(self, model, features):
        return super().read_head(model, features)[:, :2]


class NotANumber(Er):
    def read_mean(self, model, features):
        return super().read_mean(model, features) * torch.nan


class Hoarder(Er):
    def learn(self, batch):
        self.memory.capacity += 1
        return super().learn(batch)


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
