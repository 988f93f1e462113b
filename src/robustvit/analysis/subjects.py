"""The models that an analysis looks at, and how it asks them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, Queries
from robustvit.attacks.losses import cross_entropy
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.evaluation import Outcome, evaluate, memory
from robustvit.evaluation.fits import check_answers, check_fits
from robustvit.evaluation.suites import Suite
from robustvit.models import Classifier
from robustvit.progress import Advance, unseen


@dataclass(frozen=True, slots=True)
class Subject:
    """A model under a name; checkpoints of one training share the name and differ in their epoch.

    `kept` is where outcomes of it are kept, if they are.
    """

    name: str
    model: Classifier
    epoch: float | None = None
    kept: Path | None = None

    @property
    def label(self) -> str:
        return self.name if self.epoch is None else f"{self.name}, epoch {self.epoch:g}"

    @property
    def device(self) -> torch.device:
        return self.model.mean.device

    def ask(self, images: Images, advance: Advance = unseen) -> Queries:
        """The model in micro-batches that fit; `advance` is told of every image asked for."""
        ask = Queries(self.model, precision="fp32")
        x, y = (part.to(self.device) for part in images.batch(slice(2)))
        ask.ledger.size = memory.micro_batch(ask, x, y)
        ask.ledger.watch = lambda calls: advance(calls, self.label)
        return ask

    def check(self, images: Images) -> None:
        check_fits(self.model, images)
        check_answers(Queries(self.model), images.batch(slice(2))[0].to(self.device), images)

    def windows(self, images: Images) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """As many images at a time as fit, with their places in the set."""
        size = memory.window_size(images.batch(slice(1))[0][0].to(self.device))
        for begin in range(0, len(images), size):
            rows = slice(begin, min(begin + size, len(images)))
            x, y = images.batch(rows)
            yield rows, x.to(self.device), y.to(self.device)


Models = nn.Module | Mapping[str, nn.Module] | Mapping[int, nn.Module] | Sequence[Subject]


def subjects_of(models: Models) -> list[Subject]:
    """One module; several by name; checkpoints of one by epoch; or subjects, for checkpoints of several."""
    if isinstance(models, nn.Module):
        subjects = [Subject(type(models).__name__, _classifier(models))]
    elif isinstance(models, Mapping):
        subjects = [_entry(key, model) for key, model in models.items()]
    else:
        subjects = list(models)
    if not subjects:
        raise UserError("models: none given; accepted: one or more")
    for i, subject in enumerate(subjects):
        if subject.label in [other.label for other in subjects[:i]]:
            raise UserError(f"models: {subject.label!r} is given twice; accepted: each name and epoch once")
    return subjects


def _entry(key: str | int, model: nn.Module) -> Subject:
    return Subject(key, _classifier(model)) if isinstance(key, str) else Subject("model", _classifier(model), key)


def _classifier(model: nn.Module) -> Classifier:
    """Where the module is, and in the mode it is in."""
    if isinstance(model, Classifier):
        return model
    device = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), torch.device("cpu"))
    return Classifier(model).to(device)


def loss_under(attack: Attack, ask: Queries, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each image as the attack leaves it."""
    return loss_at(ask, attack(ask, x, y), y)


def loss_at(ask: Queries, x: Tensor, y: Tensor) -> Tensor:
    loss = cross_entropy(ask(x), y)
    if not bool(loss.isfinite().all()):
        raise UserError("model: its loss is NaN or infinite under attack; its weights may be broken")
    return loss


STANDING = 0.5  # of the images, when the first attack of several is through: a guess


def passes(attack: Attack) -> float:
    """What an image costs a model, about: of several attacks all but the first see only what still stands."""
    first, *rest = attack.stages
    return first.cost() + STANDING * sum(stage.cost() for stage in rest)


def judged(subject: Subject, images: Images, suite: Suite) -> list[Outcome]:
    """Outcomes of a suite; where they are kept, a killed analysis goes on from them."""
    device = subject.device.type
    return evaluate(subject.model, images, suite, subject.kept, device=device, evidence=False, checks=False)
