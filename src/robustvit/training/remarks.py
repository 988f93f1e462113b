"""What a recipe says and will not do. No error, since a trial may want it so, but nothing to find out afterwards."""

from collections.abc import Iterator

from robustvit.attacks import Attack
from robustvit.config import Recipe
from robustvit.threat import Threat
from robustvit.training.schedule import Linear, Phase, Progress, Schedule

MOMENTS = 200  # of a phase, at which its schedules are looked at
REACHED = 0.95  # of the set value: a cosine comes so near between two moments


def remarks(recipe: Recipe) -> Iterator[str]:
    threat = None
    for number, phase in enumerate(recipe.phases):
        for name, schedule in (("eps", phase.eps), ("augment", phase.augment)):
            if (most := _most(schedule, phase)) < REACHED:
                field, remedy = f"phases.{number}.{name}", ""
                if isinstance(schedule, Linear):
                    remedy = f"; {field}.epochs={max(1, phase.epochs // 3)} would bring it up sooner"
                yield f"{field} comes to {most:.0%} of its full value in {_epochs(phase)}{remedy}"
        if (most := _most(recipe.optim.schedule, phase)) < REACHED:
            yield f"optim.schedule comes to {most:.0%} of optim.lr in {_epochs(phase)} of phase {number}"
        if phase.awp and phase.awp.start_epoch >= phase.epochs:
            yield f"phases.{number}.awp begins at epoch {phase.awp.start_epoch:g} of {phase.epochs}: never"
        threat = _threat(getattr(phase.objective, "adversary", None)) or threat
    selected = _threat(recipe.select)
    if threat and selected and selected != threat:
        yield f"the best checkpoint is selected under {_said(selected)}, and the model is trained against {_said(threat)}"


def _most(schedule: Schedule, phase: Phase) -> float:
    moments = (phase.epochs * moment / MOMENTS for moment in range(MOMENTS + 1))
    return max(schedule(Progress(0, epoch, phase.epochs)) for epoch in moments)


def _epochs(phase: Phase) -> str:
    return f"{phase.epochs} epoch{'s' if phase.epochs > 1 else ''}"


def _threat(attack: Attack | None) -> Threat | None:
    return attack.threat if attack else None


def _said(threat: Threat) -> str:
    return f"{threat.norm} {threat.eps:.4g}"
