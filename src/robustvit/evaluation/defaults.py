"""What an evaluation takes from the run it judges where the command line is silent."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from robustvit import config, zoo
from robustvit.config import Recipe
from robustvit.data.spec import DataSpec
from robustvit.errors import UserError, concerning
from robustvit.models.classifier import check_there, no_run
from robustvit.objectives.adversarial import Adversarial
from robustvit.threat import NORMS, Threat, parse_number


@dataclass(frozen=True, slots=True)
class Defaults:
    """The recipe of the model, if it is a run, and the folder for the outcomes."""

    recipe: Recipe | None
    out: Path

    def data(
        self,
        text: str | None,
        size: int | None = None,
        resize: int | None = None,
        subset: str | None = None,
        fields: Sequence[str] = (),
    ) -> DataSpec:
        with concerning("--data-field") if fields else nullcontext():
            spec = config.override(self._data(text), list(fields))
        if size is not None:
            spec = replace(spec, size=size, resize=resize)
        elif resize is not None:
            spec = replace(spec, resize=resize)
        return spec if subset is None else replace(spec, subset=subset)

    def _data(self, text: str | None) -> DataSpec:
        own = self.recipe.data if self.recipe else None
        if text is None:
            if own is None:
                raise UserError("--data: missing; the model is no run, so say which images, as in --data cifar10:PATH")
            return own
        given = DataSpec.parse(text)
        # The run's own set, named without its place, is where training found it.
        if own is not None and own.source == given.source and given.path is None:
            return own
        if own is None:
            return given
        # The same set in another place has the same classes and splits; other encoded images are seen at the same size.
        if own.source == given.source:
            given = replace(given, classes=own.classes, splits=own.splits, args=own.args)
        if own.decodes and given.decodes:
            given = replace(given, size=own.size, resize=own.resize, channels=own.channels)
        return given

    def threat(self, norm: str | None, eps: str | None) -> Threat:
        norm = norm.lower() if norm else None  # AutoAttack writes Linf
        if norm not in (None, *NORMS):
            raise UserError(f"--norm: {norm!r}; accepted: {', '.join(NORMS)}")
        own = _trained_against(self.recipe)
        if eps is None and own is None:
            raise UserError("--eps: missing; the model was not trained against a threat, so say one, as in --eps 8/255")
        radius = own.eps if eps is None and own else parse_number(eps or "", "--eps")
        if eps is None and own and norm not in (None, own.norm):
            raise UserError(f"--eps: missing; the run's own eps is for {own.norm}, not for --norm {norm}")
        return Threat(norm or (own.norm if own else "linf"), radius)


def defaults_of(model: str) -> Defaults:
    if model.startswith(zoo.PREFIX):  # its own folder keeps what was published with it
        return Defaults(config.load(zoo.find(model) / "recipe.yaml"), Path("runs/zoo") / model.removeprefix(zoo.PREFIX))
    folder = Path(model)
    if (folder / "recipe.yaml").is_file():
        return Defaults(config.load(folder / "recipe.yaml"), folder)
    if run := run_of(folder):  # what a run is judged by is its best weights; others get a folder beside it
        out = run if folder.stem == "best" else run.with_name(f"{run.resolve().name}-{folder.stem}")
        return Defaults(config.load(run / "recipe.yaml"), out)
    if folder.is_dir() or folder.name == "recipe.yaml":
        raise no_run(folder)
    check_there(model)  # or a slip in a run's name would be told as a missing --eps
    return Defaults(None, Path("runs") / folder.stem)


def run_of(checkpoint: Path) -> Path | None:
    """The run's folder, if this is one of its checkpoints."""
    run = checkpoint.parent.parent
    return run if checkpoint.is_file() and checkpoint.parent.name == "checkpoints" and (run / "recipe.yaml").is_file() else None


def _trained_against(recipe: Recipe | None) -> Threat | None:
    for phase in reversed(recipe.phases if recipe else ()):
        if isinstance(phase.objective, Adversarial):
            return phase.objective.adversary.threat
    return None
