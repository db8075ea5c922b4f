"""A classifier that keeps learning: `partial_fit` any number of samples, of classes old or new."""

from __future__ import annotations

import copy
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ocil import modelfile, samples
from ocil.data.sources import default_net
from ocil.errors import OcilError
from ocil.estimator import Estimator, feature_names, not_fitted
from ocil.files import write_atomic, writing
from ocil.learners import registry
from ocil.learners.replay import as_float, evaluating
from ocil.nets.foreign import Foreign, offering
from ocil.restore import note_of, restored
from ocil.run.process import fault, interrupts_between_steps
from ocil.samples import BadInput, Channels, Form
from ocil.session import Session, State
from ocil.settings import Settings
from ocil.undo import WayBack

ROOM = 1 << 24  # scores of all components held at a time while predicting


class Classifier(Estimator):
    """Learns from a stream in which new classes keep arriving, with scikit-learn's method names.

    Exceptions to scikit-learn's conventions: `classes_` is in order of arrival, not sorted, and so
    are the columns of `predict_proba`; `fit` makes a single pass over the data, in their order;
    inputs may be images; labels are integers or text, never floats; a data frame's columns must
    have the same names in all calls; settings beyond the signature (lr=..., augment=...) are
    parameters like the others and are checked when learning starts; probabilities are the softmax
    of the read-out's scores, not calibrated.

    >>> import numpy as np, ocil
    >>> x, y = np.eye(4, dtype=np.float32).repeat(10, 0), np.arange(4).repeat(10)
    >>> model = ocil.Classifier("otc", net="identity").partial_fit(x[:20], y[:20])
    >>> model.classes_.tolist(), model.predict(x[[0, 15]]).tolist()
    ([0, 1], [0, 1])
    >>> model.partial_fit(x[20:], y[20:]).classes_.tolist()  # nobody said that there would be four
    [0, 1, 2, 3]

    Samples are learned in batches of `batch` (10); the rest, nine at most, waits as saved state
    until more come or `flush()` is called. A call that raises has changed nothing; only if a step
    breaks in a state above 256 MB or without trained weights, the classifier refuses to go on.
    """

    def __init__(
        self,
        method: str = "otc",
        memory: int | None = 500,
        net: str | nn.Module = "auto",
        *,
        seed: int = 0,
        augment: str = "auto",
        channels: Channels = "auto",
        **settings: Any,
    ) -> None:
        """Nothing is built before the first samples show what they are.

        `net`: auto, mlp, resnet18, resnet18-global, identity (vectors as they are: mixtures only),
        or a torch module that maps float items (n, ...) to vectors (n, d); the classifier trains a
        copy of it, or leaves it as it is where none of its weights requires a gradient. Any other
        setting of the method can be given by name (`ocil run METHOD --help` lists them).
        """
        self.method, self.memory, self.net, self.seed = method, memory, net, seed
        self.augment, self._given = augment, settings
        self.channels: Channels = channels
        self._forget()

    def _forget(self) -> None:
        self._session: Session | None = None
        self._form: Form | None = None
        self._channels: Channels | None = None  # what `channels` was when learning began
        self._names: list[str] | None = None
        self._pending: tuple[torch.Tensor, list[int | str]] | None = None
        self._counts: Counter[int | str] = Counter()
        self._unfinished: dict[str, dict[str, Any]] = {}  # by data: where `ocil learn` is in them
        self._torn = ""
        self._way_back = WayBack()

    # ---------------------------------------------------------------- learning

    def fit(self, X: Any, y: Any) -> Classifier:
        """Forget everything, learn X in its order in one pass, and leave nothing pending.

        All classes are there, so `classes_` is sorted: what scikit-learn's own tools expect.
        """
        fresh = type(self)(**self.get_params())
        fresh._add(X, y, announced=True).flush()
        self.__dict__ |= {k: v for k, v in vars(fresh).items() if k.startswith("_")}
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Classifier:
        """Learn more samples, of known or new classes; `classes` is never needed and not read."""
        return self._add(X, y)

    def _add(self, X: Any, y: Any, announced: bool = False) -> Classifier:
        """Learn whole batches of X; `announced` numbers its classes in the order of their names."""
        self._check_whole()
        channels = self._channels or self.channels
        x = torch.from_numpy(samples.items(X, channels, self._form))
        known = self._session.labels.classes if self._session else []
        waiting = self._pending[1] if self._pending else []
        labels = samples.labels(y, len(x), known or waiting)
        names = self._checked_names(X)
        session = self._session or self._begin(x)
        self._try_module(session, x)
        if announced:
            session.labels.encode(sorted(set(labels)))  # pyright: ignore[reportArgumentType]
        # From here on nothing is the caller's fault.
        self._session, self._names, self._channels = session, names, channels
        self._form = Form(tuple(x.shape[1:]), str(x.dtype).removeprefix("torch."))
        if self._pending:
            x, labels = torch.cat([self._pending[0], x]), waiting + labels
        self._learn(x, labels, whole=len(labels) - len(labels) % session.settings.batch)
        return self

    def flush(self) -> Classifier:
        """Learn the pending samples now, as a smaller batch."""
        self._check_whole()
        if self._pending:
            x, labels = self._pending
            self._session = self._session or self._begin(x)
            self._learn(x, labels, whole=len(labels))
        return self

    def _learn(self, x: torch.Tensor, labels: list[int | str], whole: int) -> None:
        """Learn the first `whole` samples in batches; the others wait."""
        session, waiting, report = self._session, self._pending, {}
        assert session is not None
        size, began = session.settings.batch, session.step
        counts = self._counts.copy()
        mark = self._way_back.mark(session) if began and whole else 0
        try:
            with interrupts_between_steps() as asked:
                for start in range(0, whole, size):
                    end = min(start + size, whole)
                    report = session.learn(x[start:end], labels[start:end])
                    if began:
                        self._way_back.add(x[start:end], labels[start:end])
                    self._counts.update(labels[start:end])
                    self._pending = None
                    if asked:
                        raise KeyboardInterrupt(f"{end} of {whole} samples were learned.")
            if whole:
                _check_sound(session, report)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._pending, self._counts = waiting, counts
            self._go_back(began, mark, error)
            if not isinstance(error, OcilError):
                _check_sound(session, {}, error)
            raise
        self._way_back.done()
        if whole < len(labels):
            self._pending = x[whole:].clone(), labels[whole:]

    def _go_back(self, began: int, mark: int, error: BaseException) -> None:
        """Take up the state before a call that failed: nothing at all, or a step."""
        if not began:
            pending, form, channels = self._pending, self._form, self._channels
            self._forget()
            if pending:
                self._pending, self._form, self._channels = pending, form, channels
            return
        assert self._session is not None
        self._torn = f"{type(error).__name__}: {str(error)[:120]}".rstrip(".")
        if session := self._way_back.back(self._session, mark):
            self._session, self._torn = session, ""

    def _check_whole(self) -> None:
        if self._torn:
            raise OcilError(
                f"Learning failed half-way in an earlier call ({self._torn}); load the model that "
                "was saved before it."
            )

    def _checked_names(self, X: Any) -> list[str] | None:
        names = feature_names(X)
        if names and self._form and self._names and names != self._names:
            raise BadInput(
                "The feature names should match those that were passed during fit, in the same "
                f"order: {', '.join(self._names[:5])} ..."
            )
        return self._names or names

    # ---------------------------------------------------------------- starting

    def _begin(self, x: torch.Tensor) -> Session:
        """A session for items like these."""
        samples.check_channels(self.channels)
        shape = tuple(x.shape[1:])
        module = copy.deepcopy(self.net) if isinstance(self.net, nn.Module) else None
        with offering(module):
            session = Session(self.method, self._resolved(shape), shape)
        if session.learner.needs_tasks:
            raise OcilError(
                f"Method {self.method} has to be told where a task ends, which a stream of your "
                "own does not say; choose another, such as otc with its default settings."
            )
        return session

    def _resolved(self, shape: tuple[int, ...]) -> Settings:
        """All settings: the defaults of the method, what fits the items, then what was given."""
        net = "module" if isinstance(self.net, nn.Module) else self.net
        given = {"net": net, "augment": self.augment, "memory": self.memory, "seed": self.seed}
        for name, choice in default_net(shape).items():
            if isinstance(given[name], str) and given[name] == "auto":
                given[name] = choice
        given = {"data": "own"} | given | self._given
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
        return registry.make_settings(self.method, registry.resolve(self.method, plain)[0])

    def _try_module(self, session: Session, x: torch.Tensor) -> None:
        """A module of somebody else may fail on any item: let it, before anything is learned."""
        model = session.learner.model
        if isinstance(model.net, Foreign):
            with torch.no_grad(), evaluating(model):
                found = [
                    model.net(as_float(part.to(session.learner.device))) for part in x.split(256)
                ]
            if not all(bool(part.isfinite().all()) for part in found):
                raise BadInput("The module given as net makes NaN or infinite vectors of X.")

    # ---------------------------------------------------------------- predicting

    def scores(self, X: Any, readout: str | None = None) -> np.ndarray:
        """Scores (n, classes) of a read-out, larger is likelier; changes no state."""
        session = self._fitted()
        self._check_whole()
        x = torch.from_numpy(samples.items(X, self._channels or self.channels, self._form))
        self._checked_names(X)
        learner = session.learner
        if readout is not None and readout not in learner.readouts():
            raise OcilError(f"No read-out '{readout}'; there are {', '.join(learner.readouts())}.")
        size = max(1, min(500, ROOM // (8 * learner.classes)))
        return torch.cat([learner.scores(part, readout).cpu() for part in x.split(size)]).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest label of each item (n,)."""
        return self.classes_[self.scores(X).argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Softmax of the scores (n, classes), columns in the order of `classes_`."""
        scores = torch.from_numpy(self.scores(X)).double()
        scores = scores.masked_fill((scores == -torch.inf).all(1, keepdim=True), 0.0)
        return scores.softmax(1).numpy()

    def score(self, X: Any, y: Any) -> float:
        """Share of correct answers."""
        answers = self.predict(X).tolist()
        wanted = samples.labels(y, len(answers), self._fitted().labels.classes)
        return sum(a == b for a, b in zip(answers, wanted, strict=True)) / len(wanted)

    def _fitted(self) -> Session:
        if self._session is None or not self._session.labels.classes:
            waiting = len(self._pending[1]) if self._pending else 0
            raise not_fitted(
                f"This Classifier is not fitted yet ({waiting} samples are pending); call "
                "partial_fit, or flush for pending ones."
            )
        return self._session

    def __sklearn_is_fitted__(self) -> bool:
        return self._session is not None and bool(self._session.labels.classes)

    @property
    def classes_(self) -> np.ndarray:
        """Labels learned so far: after `fit` sorted, later ones in order of arrival; those of
        pending samples come with them."""
        return np.array(self._fitted().labels.classes)

    @property
    def counts_(self) -> dict[int | str, int]:
        """Samples learned of each class."""
        return {label: self._counts[label] for label in self._fitted().labels.classes}

    @property
    def n_features_in_(self) -> int:
        """Numbers in one item."""
        self._fitted()
        assert self._form is not None
        return math.prod(self._form.shape)

    @property
    def pending_(self) -> int:
        """Samples that wait for a whole batch, or for flush()."""
        return len(self._pending[1]) if self._pending else 0

    # ---------------------------------------------------------------- state and files

    def state(self) -> State:
        """All that later behaviour depends on: the session's state, and pending samples."""
        tensors, scalars = self._session.state() if self._session else State({}, {})
        if self._pending:
            tensors["pending.x"] = self._pending[0]
            scalars["pending"] = self._pending[1]
        return State(tensors, scalars)

    def state_sha256(self) -> str:
        """Equal for equal states; that of an `ocil run` that learned the same batches."""
        return self.state().sha256()

    def save(self, path: str | Path, *, memory: bool = True) -> None:
        """Write a model file. It CONTAINS TRAINING IMAGES, those of the replay memory.

        `memory=False` leaves them and pending samples out: the file predicts the same, but goes
        on learning with an empty memory. (The mixtures of otc still hold features of the latest
        samples; with net="identity" those are the vectors themselves, at unit length.)
        """
        self._check_whole()
        readout = self._session.learner.readout if self._session else ""
        if not memory and readout.endswith("mean"):
            raise OcilError(
                f"Read-out '{readout}' answers by the means of the memory's images, which "
                "memory=False leaves out; save with them, or give the classifier another readout."
            )
        with writing(Path(path)):
            write_atomic(Path(path), self._blob(memory))

    def _blob(self, memory: bool = True) -> bytes:
        if self._session is None or self._form is None:
            raise not_fitted("This Classifier is not fitted yet: there is nothing to save.")
        facts = {
            "channels": self._channels or self.channels,
            "names": self._names,
            "counts": [self._counts[label] for label in self._session.labels.classes],
        }
        if memory and self._unfinished:
            facts["unfinished"] = self._unfinished
        return modelfile.dump(*note_of(self._session, self._form, self.state(), facts, memory))

    def __getstate__(self) -> dict[str, Any]:
        self._check_whole()
        net = self._session.learner.model.net if self._session else None
        return {
            "params": self.get_params(),  # they may have been set anew since learning began
            "blob": self._blob() if self._session else None,
            "module": net.module if isinstance(net, Foreign) else None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])
        if state["blob"] is not None:
            parts = restored(modelfile.parse(state["blob"]), state["module"])
            self.__dict__ |= {k: v for k, v in parts.items() if k.startswith("_")}


def load(path: str | Path, net: nn.Module | None = None) -> Classifier:
    """Read a model file; `net` is needed where the classifier was made with a module of your own.

    The file is checked and never executed. Learning goes on to the same bits as without the break.
    """
    content = modelfile.read(Path(path))
    try:
        parts = restored(content, net)
    except OcilError as error:
        raise OcilError(f"{path} cannot be used: {error}") from error
    model = Classifier(**{k: v for k, v in parts.items() if not k.startswith("_")})
    model.__dict__ |= {k: v for k, v in parts.items() if k.startswith("_")}
    return model


def _check_sound(
    session: Session, report: dict[str, torch.Tensor], error: BaseException | None = None
) -> None:
    """Refuse a step that has ruined something; it is also the true cause of an `error`."""
    if found := fault(session, report):
        raise OcilError(
            f"With lr {session.settings.lr:g} {found}; nothing of this call was kept. Make a "
            "classifier with a lower lr."
        ) from error
