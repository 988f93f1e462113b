"""The grid: every model that artefacts of a scale need, trained once and kept by what it was trained by and on."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

from robustvit.config import Recipe
from robustvit.data import DataSpec
from robustvit.errors import concerning
from robustvit.models import ModelSpec, fingerprint, load_model
from robustvit.papers.artefact import Given, Published, Source, Trained, judged_on
from robustvit.papers.scale import Scale
from robustvit.papers.sets import GENERATED, Set, Size, digest_of
from robustvit.training.folder import RunFolder
from robustvit.training.loop import fit


@dataclass(frozen=True, slots=True)
class Training:
    """A run of the grid: its recipe, with the run before as its start, on so many images, and the folder it is kept in."""

    recipe: Recipe
    folder: Path
    images: int
    side: int

    @property
    def done(self) -> bool:
        return RunFolder(self.folder).last.exists()

    def checkpoints(self) -> dict[int, Path]:
        """Its weights at the epochs that are kept."""
        every = self.recipe.keep_every or self.recipe.epochs
        return {epoch: RunFolder(self.folder).epoch(epoch) for epoch in range(every, self.recipe.epochs + 1, every)}


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
        start = None
        if isinstance(source, Trained) and source.start and self.scale.papers_own:
            start = self.paths.get(source.start.name)
        runs: list[Training] = []
        lineage = hashlib.sha256(_fingerprint(start).encode() if start else b"")
        for recipe in recipes_of(source, self.scale):
            stands, found = self.scale.stand_in(recipe, seed, self.paths), self.scale.set_of(recipe.data)
            # Of other images, under whatever path, comes another model.
            lineage.update(f"{stands.hash()} {self._digest(found, stands.data)} {stands.keep_every}".encode())
            name = f"{stands.model.name}-seed{seed}-{lineage.hexdigest()[:10]}"
            images = found.training * found.classes_of(recipe.data) // found.classes
            recipe = replace(stands, model=replace(stands.model, init=start))
            runs.append(Training(recipe, self.folder / name, images, recipe.data.size or found.side))
            start = str(self.folder / name)
        return tuple(runs)

    def _digest(self, found: Set, data: DataSpec) -> str:
        """Nothing where files are not given: nothing is trained then."""
        needed = ([found.name] if found.where else []) + ([GENERATED] if data.generated else [])
        return digest_of(data) if all(name in self.paths for name in needed) else ""

    def model(self, source: Source, seed: int) -> str | None:
        """What `load_model` takes; None for other people's weights that the user has not got."""
        if isinstance(source, Given):
            return self.paths.get(source.name)
        if isinstance(source, Published) and self.scale.papers_own:
            return source.timm
        return str(self.chain(source, seed)[-1].folder)

    def size(self, source: Source) -> Size:
        if chain := self.chain(source, 0):
            return Size(chain[-1].recipe.model, chain[-1].side)
        like = judged_on(source)
        spec = source.model if isinstance(source, Given) else like.model
        if isinstance(source, Published):
            spec = ModelSpec(source.timm, like.model.num_classes)
        return Size(spec, like.data.size or self.scale.set_of(like.data).side)

    def lacks(self, source: Source) -> str | None:
        """Why there cannot be such a model: what a user would have to pass."""
        own = self.scale.papers_own
        if isinstance(source, Given) and not own:  # it is of the paper's images, and of no others
            return f"weights that others trained ({source.where}), judged at scale paper alone"
        needed = source if isinstance(source, Given) else source.start if isinstance(source, Trained) and own else None
        if needed and needed.name not in self.paths:
            return f"weights that others trained ({needed.where}): pass --given {needed.name}=PATH"
        if (mixed := self.mixed_into(source)) and GENERATED not in self.paths:
            return f"{mixed.wanted}: pass --data {GENERATED}=PATH"
        return None

    def mixed_into(self, source: Source) -> Set | None:
        """The set that a model mixes generated images into."""
        recipes = recipes_of(source, self.scale)
        return next((self.scale.set_of(recipe.data) for recipe in recipes if recipe.data.generated), None)

    def train(self, training: Training) -> None:
        if not training.done:
            with concerning(training.recipe.name):
                fit(training.recipe, training.folder, self.device)

    def sets(self, source: Source) -> list[Set]:
        """What it trains on, and is judged on."""
        trained = isinstance(source, Trained) or self.chain(source, 0)
        recipes = recipes_of(source, self.scale) if trained else (judged_on(source),)
        return [self.scale.set_of(recipe.data) for recipe in recipes]


@cache
def _fingerprint(model: str) -> str:
    return fingerprint(load_model(model))


def waves(chains: Iterable[tuple[Training, ...]]) -> list[list[Training]]:
    """All first runs, then all that start from them, and so on; each once, however many chains share it."""
    depths = zip_longest(*chains)
    return [list({run.folder: run for run in depth if run is not None}.values()) for depth in depths]


def recipes_of(source: Source, scale: Scale) -> tuple[Recipe, ...]:
    """What has to be trained, in this order, where weights of others are not taken."""
    if isinstance(source, Trained):
        return ((source.start.like,) if source.start and not scale.papers_own else ()) + source.recipes
    return (source.like,)
