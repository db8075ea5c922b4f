"""What a model says of itself: how good it is, class by class, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ocil.consolidation import updates_within
from ocil.learners.jury import FEW
from ocil.learners.replay import ReplayLearner
from ocil.text import plain

if TYPE_CHECKING:
    from ocil.classifier import Classifier

WORST = 5  # classes that are listed
FEW_STEPS = 300  # gradient steps below which a net has hardly learned


def steps_within(model: Classifier, seconds: float) -> int:
    """Gradient steps on the memory in so many seconds; none without a jury to judge them."""
    session = model._fitted().session
    learner = session.learner
    if not seconds or not isinstance(learner, ReplayLearner):
        return 0
    if not learner.trained or learner.learned_scores() is None or len(learner.jury) < FEW:
        return 0
    return updates_within(session, seconds)


def progress(model: Classifier) -> str:
    """A few words for the bar."""
    steps, score = _steps(model), model.score_
    words = [f"{steps} gradient steps"] if steps else []
    words += [f"{100 * score.accuracy:.0f} % right"] if score else []
    return ", ".join(["learning", *words])


def judgement(model: Classifier) -> Iterator[str]:
    """Sentences: accuracy with its interval, the worst classes, what is confused, warnings."""
    score, classes = model.score_, len(model.classes_)
    if score is None:
        yield "How good it is cannot be told yet: too few samples; `ocil score` tells it on others."
        return
    low, high = 100 * score.low, 100 * score.high
    yield (
        f"About {100 * score.accuracy:.0f} % of its answers are right ({low:.0f} to {high:.0f} %), "
        f"by {score.asked} samples that they owe nothing to."
    )
    shares = sorted(
        (right / n, plain(label, 60), n) for label, (right, n) in score.by_class.items()
    )
    for share, label, n in shares[:WORST]:
        if share < 1:
            yield f"  {label}: {100 * share:.0f} % of {n}"
    for (label, said), n in list(score.confused.items())[:3]:
        yield f"  {plain(label, 60)} taken for {plain(said, 60)}: {n} times"
    missing = [plain(c, 60) for c in model.classes_.tolist() if c not in score.by_class]
    if missing:
        more = f" and {len(missing) - WORST} more" if len(missing) > WORST else ""
        yield f"  Nothing is known of {', '.join(missing[:WORST])}{more}: too few samples."
    if classes > 1 and score.accuracy < 1.5 / classes:
        yield f"Warning: that is near chance ({100 / classes:.0f} %); are labels and items right?"
    steps = _steps(model)
    if 0 < steps < FEW_STEPS:
        yield (
            f"Warning: the net had {steps} gradient steps, which are few; learn more samples, or "
            "start a model with more --updates."
        )


def _steps(model: Classifier) -> int:
    """Gradient steps that the net has had, as far as its average counts them."""
    learner = model._fitted().session.learner
    average = learner.average if isinstance(learner, ReplayLearner) else None
    return average.updates if average else 0
