"""The grid: every model that artefacts of a scale need, trained once and kept by what it was trained by."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from robustvit.config import Recipe
from robustvit.errors import concerning
from robustvit.papers.artefact import Given, Published, Source, Trained, judged_on
from robustvit.papers.scale import Scale
from robustvit.training.folder import RunFolder
from robustvit.training.loop import fit


@dataclass(frozen=True, slots=True)
class Training:
    """A run of the grid: its recipe, with the run before as its start, and the folder it is kept in."""

    recipe: Recipe
    folder: Path

    @property
    def done(self) -> bool:
        return RunFolder(self.folder).last.exists()

    def checkpoints(self) -> list[Path]:
        """Its weights at the epochs that were kept."""
        return sorted(RunFolder(self.folder).state.parent.glob("epoch-*.safetensors"))


@dataclass(frozen=True, slots=True)
class Grid:
    """`paths` say where sets and other people's checkpoints lie, by their names."""

    scale: Scale
    folder: Path
    paths: Mapping[str, str]
    device: str | None = None

    def chain(self, source: Source, seed: int) -> tuple[Training, ...]:
        """The runs whose last one is the model; none for weights that others made."""
        if isinstance(source, Given) or (isinstance(source, Published) and self.scale.papers_own):
            return ()
        recipes, start = _recipes(source), None
        if isinstance(source, Trained) and source.start and self.scale.papers_own:
            start = self.paths.get(source.start.name)
        runs: list[Training] = []
        lineage = hashlib.sha256((start or "").encode())
        for recipe in recipes:
            stands = self.scale.stand_in(recipe, seed, self.paths)
            lineage.update(stands.hash().encode())
            name = f"{recipe.name}-{stands.model.name}-seed{seed}-{lineage.hexdigest()[:10]}"
            runs.append(Training(replace(stands, model=replace(stands.model, init=start)), self.folder / name))
            start = str(self.folder / name)
        return tuple(runs)

    def model(self, source: Source, seed: int) -> str | None:
        """What `load_model` takes; None for other people's weights that the user has not got."""
        if isinstance(source, Given):
            return self.paths.get(source.name)
        if isinstance(source, Published) and self.scale.papers_own:
            return source.timm
        return str(self.chain(source, seed)[-1].folder)

    def lacks(self, source: Source) -> Given | None:
        """Other people's weights that a model needs and the user has not got; only the papers' own scale needs a start's."""
        needed = source if isinstance(source, Given) else None
        if isinstance(source, Trained) and self.scale.papers_own:
            needed = source.start
        return needed if needed and needed.name not in self.paths else None

    def lacks_images(self, source: Source) -> str | None:
        """A file of generated images that a recipe mixes in and the user has not got."""
        mixed = any(recipe.data.generated for recipe in _recipes(source))
        return "generated" if mixed and "generated" not in self.paths else None

    def train(self, training: Training) -> None:
        if not training.done:
            with concerning(training.recipe.name):
                fit(training.recipe, training.folder, self.device)

    def sets(self, source: Source) -> set[str]:
        """Names of the sets that it trains or is judged on."""
        recipes = _recipes(source) if self.chain(source, 0) or isinstance(source, Trained) else (judged_on(source),)
        return {self.scale.set_of(recipe.data).name for recipe in recipes}


def waves(chains: Iterable[tuple[Training, ...]]) -> list[list[Training]]:
    """All first runs, then all that start from them, and so on; each once, however many chains share it."""
    depths = zip_longest(*chains)
    return [list({run.folder: run for run in depth if run is not None}.values()) for depth in depths]


def _recipes(source: Source) -> tuple[Recipe, ...]:
    """What has to be trained, in this order, where weights of others are not taken."""
    if isinstance(source, Trained):
        return ((source.start.like,) if source.start else ()) + source.recipes
    return (source.like,)
