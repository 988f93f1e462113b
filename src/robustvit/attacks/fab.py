"""FAB: the nearest point across the decision boundary, found by walking along the boundary towards the image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustvit import noise
from robustvit.attacks.base import CLASSES, Attack
from robustvit.attacks.hyperplane import nearest
from robustvit.attacks.losses import hard_labels, targeted_margin
from robustvit.attacks.query import Ascent, Model, Queries
from robustvit.attacks.targets import likeliest_others
from robustvit.attacks.window import Rows, Window
from robustvit.errors import UserError
from robustvit.threat import Threat

DUAL = {"linf": 1, "l2": 2, "l1": torch.inf}  # the order of the norm that measures gradients


@dataclass(frozen=True, slots=True)
class FAB(Attack):
    """Fast adaptive boundary attack (Croce & Hein, 2020, "Minimally distorted adversarial examples ...", algorithm 1).

    With `targets` 0 an iteration linearises the boundaries to all classes and takes the nearest; otherwise it is FAB-T, one run
    for each of that many likeliest other classes. Run k > 0 of `restarts` starts eps/2 away from the image in a random
    direction (of `Threat.sample`; in the paper nearer, where an example nearer than eps is known).

    Departures. The paper seeks the least distance; here an image leaves with its first example inside the ball, so the final
    search is left out, as in the authors' AutoAttack. On the way there the path is theirs. An iteration asks twice, for a
    gradient and for the label of the point it leads to: nearly every such point is adversarial and steps back at once, so a
    gradient asked for with the label would be of the wrong point. In return the logits that come with the gradient are looked
    at too: where the step back led to an example inside the ball, it counts.
    """

    threat: Threat
    steps: int = 100
    targets: int = 0
    restarts: int = 1
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("targets", 0), ("restarts", 1)):
            if getattr(self, name) < least:
                raise UserError(f"fab.{name}: {getattr(self, name)}; accepted: {least} or more")
        if not 0 <= self.alpha_max <= 1:
            raise UserError(f"fab.alpha_max: {self.alpha_max}; accepted: 0 to 1")
        if not 1 <= self.eta < float("inf"):
            raise UserError(f"fab.eta: {self.eta}; accepted: a finite number, 1 or more")
        if not 0 < self.beta <= 1:
            raise UserError(f"fab.beta: {self.beta}; accepted: above 0, 1 at most")

    @property
    def random(self) -> bool:
        return self.restarts > 1

    @property
    def name(self) -> str:
        return self.named("fab-t" if self.targets else "fab", "targets", "restarts")

    def cost(self, classes: int = CLASSES) -> int:
        """Untargeted, an iteration takes a backward pass a class."""
        if self.targets:
            return 1 + 3 * self.steps * min(self.targets, classes - 1) * self.restarts
        return (classes + 2) * self.steps * self.restarts

    def perturb(self, model: Model, x: Tensor, y: Tensor) -> Tensor:
        ask = Queries.of(model)
        window = Window(ask, x, y)
        others = likeliest_others(ask(x), y, self.targets) if self.targets else None
        for _ in window.in_turn(self.restarts * (1 if others is None else others.shape[1])):
            self._run(window, others)
        return window.result

    def _run(self, window: Window, others: Tensor | None) -> None:
        """On the rows that stand; `others`: the targets of every image that came in. Restarts follow each other."""
        x_adv = window.x
        if self.restarts > 1:
            start = self.threat.scaled(0.5).sample(x_adv, noise.uniform(x_adv, self.seed, window.run))
            again = window.run % self.restarts > 0
            x_adv = torch.where(again.view(-1, *[1] * (x_adv.dim() - 1)), start, x_adv)
        for _ in range(self.steps):
            if not len(window):
                break
            ascent = self._boundary(window, x_adv, others)
            plane = _Plane(x_adv, ascent.loss, ascent.grad).keep(self._claim(window, x_adv, ascent.logits))
            if not len(window):
                break
            x_adv = self._step(plane, window.x)
            logits = window.ask(x_adv)
            across = (logits.argmax(1) != hard_labels(window.y)).view(-1, *[1] * (x_adv.dim() - 1))
            back = torch.where(across, window.x + self.beta * (x_adv - window.x), x_adv)
            stay = self._claim(window, x_adv, logits)
            x_adv = back if stay is None else back[stay]

    def _claim(self, window: Window, x_adv: Tensor, logits: Tensor) -> Tensor | None:
        return window.claim(x_adv, logits, self.threat.contains(x_adv, window.x))

    def _boundary(self, window: Window, x_adv: Tensor, others: Tensor | None) -> Ascent:
        """z_s − z_y and its gradient, s the class whose linearised boundary is nearest, or the target."""
        if others is None:
            return window.ask.least_margin(x_adv, hard_labels(window.y), self._distance)
        return window.ask.gradient(x_adv, targeted_margin, window.y, others[window.place, window.run // self.restarts])

    def _distance(self, margin: Tensor, grad: Tensor) -> Tensor:
        """How far it is to where the linearised margin is zero, the box left aside."""
        slope = grad.double().flatten(1).norm(p=DUAL[self.threat.norm], dim=1)
        return torch.where(slope == 0, torch.inf, margin.abs() / slope)

    def _step(self, plane: "_Plane", x: Tensor) -> Tensor:
        """Project iterate and image onto the hyperplane, overshoot, and mix the two by how far they moved."""
        w = plane.grad.flatten(1).double()
        b = (w * plane.x_adv.flatten(1)).sum(1) - plane.margin
        starts = torch.cat([plane.x_adv, x]).flatten(1).double()
        moves = nearest(self.threat.norm, starts, w.repeat(2, 1), b.repeat(2)) - starts
        far = self.threat.distance(moves, torch.zeros_like(moves)).clamp(min=1e-8)[:, None]
        of_iterate, of_image = far.chunk(2)
        alpha = (of_iterate / (of_iterate + of_image)).clamp(max=self.alpha_max)
        iterate, image = (starts + self.eta * moves).chunk(2)
        return ((1 - alpha) * iterate + alpha * image).clamp(0, 1).to(x.dtype).view_as(x)


@dataclass
class _Plane(Rows):
    """The boundary near each iterate, linearised there: margin + <grad, z − x_adv> = 0."""

    x_adv: Tensor
    margin: Tensor
    grad: Tensor
