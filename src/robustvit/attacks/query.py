"""How an attack asks the model: in micro-batches that fit, in a chosen arithmetic, averaged over draws, and counted."""

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from robustvit.attacks.replay import Replay, Work
from robustvit.errors import UserError
from robustvit.precision import Precision, arithmetic

Model = Callable[[Tensor], Tensor]

# So many pixels keep a GPU busy; a few images it answers no faster. A CPU is busy with one.
BUSY = {"cuda": 2**22}


@dataclass(frozen=True, slots=True)
class Ascent:
    """What one gradient step knows of each image."""

    loss: Tensor  # [B]
    logits: Tensor  # [B, K]
    grad: Tensor  # of x's shape; NaN where the loss is not finite


@dataclass
class Ledger:
    """What the queries of an attack share: the size that fits, and how many images were asked for so far."""

    size: int | None = None
    forward: int = 0
    backward: int = 0
    watch: Callable[[int], None] | None = None  # told of every image asked for: 1 forward, 1 backward

    def count(self, forward: int, backward: int) -> None:
        self.forward += forward
        self.backward += backward
        if self.watch:
            self.watch(forward + backward)


@dataclass(frozen=True)
class Queries:
    """A model as attacks see it; itself a model.

    `precision` None keeps the caller's arithmetic. With `draws` above 1 loss and gradient are means over that many answers of
    a stochastic model, and the logits are the log of its mean probabilities: success is judged on the averaged prediction.
    `scale` multiplies the logits. `busy` is how many pixels keep the device busy, None by its kind.
    `replay`, within one attack, spares a GPU the launches of small batches, unless `graphs` is off. `fast` is a faster form of
    the same function, asked in the model's stead except for what must be exact. `label` is the largest that answers must cover.
    """

    model: Model
    precision: Precision | None = None
    draws: int = 1
    scale: float = 1.0
    busy: int | None = None
    graphs: bool = True
    replay: Replay | None = None
    fast: Model | None = None
    label: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    @staticmethod
    def of(model: Model) -> "Queries":
        return model if isinstance(model, Queries) else Queries(model)

    @property
    def approximate(self) -> bool:
        """May an answer differ from the verdict's?"""
        return self.precision not in (None, "fp32") or self.fast is not None

    def exactly(self) -> "Queries":
        return replace(self, precision="fp32", fast=None)

    def for_one_attack(self, y: Tensor) -> "Queries":
        return replace(self, replay=Replay() if self.graphs else None, label=int(y.max()) if y.dim() == 1 else y.shape[1] - 1)

    def at_once(self, x: Tensor) -> int:
        """How many times these images can be asked about together, about as fast as once."""
        if self.draws > 1:  # whose successes are settled run by run
            return 1
        busy = BUSY.get(x.device.type, 1) if self.busy is None else self.busy
        rows = busy // (x.shape[2] * x.shape[3])
        return max(1, min(rows, self.ledger.size or rows) // len(x))

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, without a graph."""

        def answer(x: Tensor) -> tuple[Tensor]:
            with torch.no_grad(), self._arithmetic():
                return (_averaged([self._logits(x) for _ in range(self.draws)]),)

        (logits,) = self._in_parts(self._replayed("logits", answer), x)
        self.ledger.count(len(x) * self.draws, 0)
        return logits

    def gradient(self, x: Tensor, loss: Callable[..., Tensor], *aligned: Tensor) -> Ascent:
        """The gradient of loss(logits, *aligned) with respect to x; `aligned` tensors have one row an image.

        The sum, not the mean, is differentiated: an image's gradient must not depend on its batch. Where the loss is not
        finite the gradient is NaN, so that the fault reaches the example and is reported without a device sync at each step.
        """

        def ascend(x: Tensor, *aligned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            draws = [self._one_gradient(x, loss, *aligned) for _ in range(self.draws)]
            losses, logits, grads = (list(column) for column in zip(*draws, strict=True))
            return _mean(losses), _averaged(logits), _mean(grads)

        ascent = Ascent(*self._in_parts(self._replayed(loss, ascend), x, *aligned))
        self.ledger.count(len(x) * self.draws, len(x) * self.draws)
        return ascent

    def least_margin(self, x: Tensor, y: Tensor, distance: Callable[[Tensor, Tensor], Tensor]) -> Ascent:
        """z_s − z_y, as the loss, and its gradient for the class s ≠ y of least distance(z_s − z_y, gradient).

        A backward pass a class through one forward pass; only the best gradient so far is kept, since those of all classes
        would not fit for ImageNet. Both are zero where no class is at a finite distance.
        """

        def compare(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            x = x.detach().requires_grad_()
            with torch.enable_grad(), self._arithmetic():
                answers = [self._logits(x) for _ in range(self.draws)]
                margins = _mean([logits - logits.gather(1, y[:, None]) for logits in answers])
                least = torch.full_like(margins[:, 0], torch.inf)
                loss, grad = torch.zeros_like(least), torch.zeros_like(x)
                for s, margin in enumerate(margins.unbind(1) if margins.requires_grad else ()):
                    (each,) = torch.autograd.grad(margin.sum(), x, retain_graph=True, materialize_grads=True)
                    far = distance(margin.detach(), each).masked_fill(y == s, torch.inf)
                    nearer = (far < least) | far.isnan()
                    least, loss = torch.where(nearer, far, least), torch.where(nearer, margin.detach(), loss)
                    grad = torch.where(nearer.view(-1, *[1] * (x.dim() - 1)), each, grad)
            self.ledger.count(len(x) * self.draws, len(x) * self.draws * margins.shape[1])
            return loss, _averaged([logits.detach() for logits in answers]), grad

        return Ascent(*self._in_parts(compare, x, y))

    def _one_gradient(self, x: Tensor, loss: Callable[..., Tensor], *aligned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.detach().requires_grad_()
        with torch.enable_grad(), self._arithmetic():
            logits = self._logits(x)
            value = loss(logits, *aligned)
            grad = None
            if value.requires_grad:
                (grad,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
        grad = torch.zeros_like(x) if grad is None else grad
        finite = value.detach().isfinite().view(-1, *[1] * (x.dim() - 1))
        return value.detach(), logits.detach(), grad.where(finite, torch.nan)

    def _logits(self, x: Tensor) -> Tensor:
        logits = (self.fast or self.model)(x)
        if not isinstance(logits, Tensor):
            raise UserError(f"model: answers with a {type(logits).__name__}; accepted: one tensor of logits, [batch, classes]")
        if logits.dim() != 2 or len(logits) != len(x):
            raise UserError(f"model: answers {tuple(logits.shape)} to {len(x)} images; accepted: one row of logits an image")
        if self.label >= logits.shape[1]:
            raise UserError(f"labels: up to {self.label}; accepted by the model: 0 to {logits.shape[1] - 1}")
        wide = logits if logits.dtype == torch.float64 else logits.float()
        return wide * self.scale if self.scale != 1 else wide

    def _replayed(self, name: Hashable, work: Work) -> Work:
        if self.replay is None or self.draws > 1:
            return work
        return partial(self.replay, (name, self.precision, self.scale, self.fast is None), work)

    def _arithmetic(self) -> AbstractContextManager[None]:
        return arithmetic(self.precision) if self.precision else nullcontext()

    def _in_parts(self, work: Work, x: Tensor, *aligned: Tensor) -> tuple[Tensor, ...]:
        """Micro-batches of the ledger's size, which is halved for good when the device runs out of memory."""
        answers, begin = [], 0
        while begin < len(x):
            part = slice(begin, begin + (self.ledger.size or len(x)))
            try:
                answers.append(work(x[part], *(tensor[part] for tensor in aligned)))
                begin = part.stop
            except RuntimeError as error:  # of which torch.OutOfMemoryError is one
                if not _out_of_memory(error):
                    raise
                size = len(x[part])
                if size == 1:
                    raise UserError("memory: not even one image fits on the device; use a larger one, or the CPU") from None
                self.ledger.size = size // 2
            else:
                continue
            # Outside the handler: inside it the traceback keeps what did not fit alive.
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if len(answers) == 1:
            return answers[0]
        return tuple(torch.cat(column) for column in zip(*answers, strict=True))


def _out_of_memory(error: RuntimeError) -> bool:
    """The CPU's allocator and CUDA's libraries have no class of their own for it."""
    told = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, torch.OutOfMemoryError) or any(each in str(error) for each in told)


def _mean(draws: list[Tensor]) -> Tensor:
    return draws[0] if len(draws) == 1 else torch.stack(draws).mean(0)


def _averaged(logits: list[Tensor]) -> Tensor:
    """The log of the mean probabilities; of one draw the logits themselves, since losses compare their differences."""
    if len(logits) == 1:
        return logits[0]
    return torch.stack(logits).log_softmax(2).logsumexp(0) - torch.tensor(float(len(logits))).log().item()
