"""A classifier that keeps learning: `partial_fit` any number of samples, of classes old or new."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ocil import merging, modelfile, ranges, samples
from ocil.afterwards import Afterwards
from ocil.answers import arrive
from ocil.errors import OcilError, brief
from ocil.estimator import not_fitted
from ocil.files import write_atomic, writing
from ocil.labels import Label
from ocil.learners import registry
from ocil.mergeable import params_of
from ocil.modelfile import Learned
from ocil.nets.foreign import Foreign, offering
from ocil.run.process import check_call
from ocil.run.signals import interrupts_between_steps
from ocil.samples import BadInput, Channels, Form
from ocil.session import Session, WayBack
from ocil.suited import suited


class Classifier(Afterwards):
    """Learns from a stream in which new classes keep arriving, with scikit-learn's method names.

    Exceptions to scikit-learn's conventions: `classes_` is in order of arrival, not sorted, and so
    are the columns of `predict_proba`; `fit` makes a single pass over the data, in their order;
    inputs may be images; a data frame's columns must have the same names in all calls; settings
    beyond the signature (lr=..., augment=...) are parameters like the others and are checked when
    learning starts; probabilities are the softmax of the read-out's scores, not calibrated.

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
        effort: str = "auto",
        channels: Channels = "auto",
        scale: bool = True,
        **settings: Any,
    ) -> None:
        """Nothing is built before the first samples show what they are.

        `net`: auto, mlp, resnet18, resnet18-global, identity (vectors as they are: mixtures only),
        or a torch module that maps float items (n, ...) to vectors (n, d); the classifier trains a
        copy of it, or leaves it as it is where none of its weights requires a gradient. With
        "hf:NAME_OR_FOLDER" a frozen model makes vectors of X, a list of texts or of picture files.
        `effort`: low answers by the exact statistics of fixed features alone; auto trains a net on
        images as well, and high does so with more gradient steps, and on vectors too (where it was
        tried, a net added nothing to the statistics of vectors). Any other setting of the method
        can be given by name (`ocil run METHOD --help` lists them).
        """
        self.method, self.memory, self.net, self.seed = method, memory, net, seed
        self.augment, self.effort, self._given = augment, effort, settings
        self.channels: Channels = channels
        self.scale = scale
        self._learned, self._backbone = None, None
        self._restart = False  # the first step failed
        self._torn, self._way_back = "", WayBack()
        self._told = False  # that vectors have left their range

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classifier:
        """Forget everything, learn X in its order in one pass, and leave nothing pending.

        All classes are there, so `classes_` is sorted: what scikit-learn's own tools expect.
        """
        fresh = type(self)(**self.get_params())
        fresh._encoder, fresh._backbone = self._encoder, self._backbone
        fresh._add(X, y, sample_weight, announced=True).flush()
        self._learned, self._torn, self._way_back = fresh._learned, "", fresh._way_back
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> Classifier:
        """Learn more samples, of known or new classes; `classes` is never needed and not read.

        `sample_weight`: how often each counts, in losses, memory and sums alike. Weight 2 is the
        sample twice in a row, 0 leaves it out; they are whole numbers.
        """
        return self._add(X, y, sample_weight)

    def _add(self, X: Any, y: Any, weight: Any, announced: bool = False) -> Classifier:
        """Learn whole batches of X; `announced` numbers its classes in the order of their names."""
        self._check_whole()
        x, names = self._items(X)
        now = self._learned
        waiting = now.pending[1] if now and now.pending else []
        labels = samples.labels(y, len(x), (now.session.labels.classes if now else []) or waiting)
        if (places := samples.repeated(weight, len(x))) is not None:
            x, labels = x[places], [labels[i] for i in places]
        if now is None:
            form = Form.of(x)
            now = Learned(self._begin(form.shape), form, self.channels, backbone=self._front())
        elif self._restart:
            now.session = self._begin(now.form.shape)
        self._restart = False
        self._try_module(now.session, x)
        if announced:
            now.session.labels.encode(sorted(set(labels)))  # pyright: ignore[reportArgumentType]
        # From here on nothing is the caller's fault.
        self._learned, now.names = now, names
        if now.pending:
            x, labels = torch.cat([now.pending[0], x]), waiting + labels
        self._learn(now, x, labels, whole=len(labels) - len(labels) % now.session.settings.batch)
        return self

    def flush(self) -> Classifier:
        """Learn the pending samples now, as a smaller batch."""
        self._check_whole()
        if (now := self._learned) and now.pending:
            if self._restart:
                now.session, self._restart = self._begin(now.form.shape), False
            self._learn(now, *now.pending, whole=self.pending_)
        if now and now.session.labels.classes:
            now.session.learner.settle()
        return self

    def _learn(self, now: Learned, x: torch.Tensor, labels: list[Label], whole: int) -> None:
        """Learn the first `whole` samples in batches; the others wait."""
        waiting, report, session = now.pending, {}, now.session
        size, began = session.settings.batch, session.step
        counts, came = now.counts.copy(), now.arrivals
        mark = self._way_back.mark(session) if began and whole else 0
        try:
            with interrupts_between_steps() as asked:
                for start in range(0, whole, size):
                    end = min(start + size, whole)
                    batch = x[start:end], labels[start:end]
                    if self.scale and not self._told:
                        self._told = ranges.told(now, *batch)
                    arrivals = arrive(now, *batch)
                    report = session.learn(*batch)
                    if began:
                        self._way_back.add(*batch)
                    now.counts.update(batch[1])
                    now.pending, now.arrivals = None, arrivals
                    if asked:
                        raise KeyboardInterrupt(f"{end} of {whole} samples were learned.")
            if whole:
                check_call(session, report)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            now.pending, now.counts, now.arrivals = waiting, counts, came
            self._go_back(now, began, mark, error)
            if not isinstance(error, OcilError):
                check_call(session, {}, error)
            raise
        self._way_back.done()
        if whole < len(labels):
            now.pending = x[whole:].clone(), labels[whole:]

    def _go_back(self, now: Learned, began: int, mark: int, error: BaseException) -> None:
        """Take up the state before a call that failed: nothing but pending samples, or a step."""
        if began:
            self._torn = f"{type(error).__name__}: {brief(error, 120)}"
            if session := self._way_back.back(now.session, mark):
                now.session, self._torn = session, ""
        elif now.pending:  # they wait for a new start, which takes the parameters of then
            session, self._restart = self._begin(now.form.shape), True
            self._learned = replace(now, session=session)
        else:
            self._learned = None

    def _begin(self, shape: tuple[int, ...]) -> Session:
        """A session for items of this shape: defaults, what fits the items, what was given."""
        samples.check_channels(self.channels)
        module = copy.deepcopy(self.net) if isinstance(self.net, nn.Module) else None
        named = {name: getattr(self, name) for name in ("net", "augment", "memory", "seed")}
        named |= {} if module is None else {"net": "module"}
        fitting = suited(self.get_params(), shape)
        given = {"data": "own"} | named | fitting | self._given
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in given.items()}
        settings = registry.make_settings(self.method, registry.resolve(self.method, plain)[0])
        with offering(module):
            session = Session(self.method, settings, shape)
        if session.learner.needs_tasks:
            raise OcilError(
                f"Method {self.method} has to be told where a task ends, which a stream of your "
                "own does not say; choose another, such as otc with its default settings."
            )
        if self._encoder is not None:
            merging.lend(self._encoder, session.learner)
        return session

    def _try_module(self, session: Session, x: torch.Tensor) -> None:
        """A module of somebody else may fail on any item: let it, before anything is learned."""
        if isinstance(session.learner.model.net, Foreign):
            with torch.no_grad():
                vectors = session.learner.features(x)["live"]
            if not bool(vectors.isfinite().all()):
                raise BadInput("The module given as net makes NaN or infinite vectors of X.")

    def save(self, path: str | Path, *, memory: bool = True, backbone: bool | None = None) -> None:
        """Write a model file. It CONTAINS TRAINING IMAGES, those of the replay memory.

        `memory=False` leaves them and pending samples out: the file predicts the same, but goes
        on learning with an empty memory. (The mixtures of otc still hold features of the latest
        samples; with net="identity" those are the vectors themselves, at unit length. Statistics
        such as those of slda take up the samples that wait, so scores change as by another batch.)
        `backbone`: whether it carries the files of a backbone by name; unless told, as it did.
        """
        self._check_whole()
        learner = self._learned.session.learner if self._learned else None
        if not memory and learner and learner.readouts()[learner.readout].needs_memory:
            raise OcilError(
                f"Read-out '{learner.readout}' answers by the means of the memory's images, which "
                "memory=False leaves out; save with them, or give the classifier another readout."
            )
        with writing(Path(path)):
            write_atomic(Path(path), self._blob(memory, backbone))

    def _blob(self, memory: bool = True, backbone: bool | None = None) -> bytes:
        if self._learned is None:
            raise not_fitted("This Classifier is not fitted yet: there is nothing to save.")
        return modelfile.dump(*modelfile.content_of(self._learned, memory, backbone))

    def __getstate__(self) -> dict[str, Any]:
        self._check_whole()
        net = self._learned.session.learner.model.net if self._learned else None
        return {
            "params": self.get_params(),  # they may have been set anew since learning began
            "blob": self._blob() if self._learned else None,
            "module": net.module if isinstance(net, Foreign) else None,
            "encoder": self._encoder,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])
        self._encoder = state.get("encoder")
        if state["blob"] is not None:
            self._learned = modelfile.restore(modelfile.parse(state["blob"]), state["module"])


def load(path: str | Path, net: nn.Module | str | None = None) -> Classifier:
    """Read a model file; `net` is needed where the classifier was made with a module of your own.

    A backbone by name is looked for on disk, where it was; net="hf:NAME_OR_FOLDER" says where else.
    The file is checked and never executed. Learning goes on to the same bits as without the break.
    """
    content = modelfile.read(Path(path))
    try:
        learned = modelfile.restore(content, net)
    except OcilError as error:
        raise OcilError(f"{path} cannot be used: {error}") from error
    own = learned.backbone.name if learned.backbone else net
    params: dict[str, Any] = params_of(learned) | ({} if own is None else {"net": own})
    model = Classifier(**params)
    model._learned = learned
    return model
