"""Job: what an artefact asks at a scale, of which models and on which images. Nothing is trained or judged here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from robustvit.papers.artefact import Artefact, Look, Row, Source, judged_on
from robustvit.papers.grid import Grid, Training
from robustvit.papers.looking import Inquiry, Looked
from robustvit.papers.measures import LOOK, Asked, Question
from robustvit.papers.needs import ROBUSTBENCH, left_out
from robustvit.papers.sets import Judged

Place = tuple[str, str]  # row and column
LISTED = 5000  # images on RobustBench's list


@dataclass(frozen=True, slots=True)
class Job:
    """An artefact at a scale; without a number of seeds, the scale's."""

    artefact: Artefact
    grid: Grid
    asked_seeds: int | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.asked_seeds or self.grid.scale.seeds))

    def rows(self) -> list[Row]:
        """Those with something to do."""
        return [row for row in self.artefact.everything if left_out(row, self.grid) is None]

    def chains(self) -> list[tuple[Training, ...]]:
        """Of every model of the rows that are not left out."""
        return [self.grid.chain(source, seed) for row in self.rows() for source in row.models.values() for seed in self.seeds]

    def seeds_of(self, source: Source) -> tuple[int, ...]:
        """Weights of others are there once, whatever the number of seeds."""
        return self.seeds if self.grid.chain(source, 0) else self.seeds[:1]

    def model(self, source: Source, seed: int) -> str:
        model = self.grid.model(source, seed)
        assert model is not None, source  # rows without are left out
        return model

    def judged(self, source: Source) -> Judged:
        """The images that a model is judged on."""
        papers, grid = judged_on(source).data, self.grid
        found, data = grid.scale.set_of(papers), grid.scale.data(papers, grid.paths)
        if self.artefact.images == ROBUSTBENCH and data.source == "imagenet" and data.classes is None:
            return Judged(replace(data, subset=grid.paths.get(ROBUSTBENCH, ROBUSTBENCH)), None, LISTED)
        return Judged(data, found.sample_seed, found.testing)

    def questions(self) -> dict[Place, list[Question]]:
        """Of each cell that is not the look's, one a seed."""
        cells, scale = {}, self.grid.scale
        for row in (row for row in self.artefact.rows if left_out(row, self.grid) is None):
            for column in self.artefact.columns:
                if column.ask != LOOK and column.of in row.models:
                    source = row.models[column.of]
                    threat = column.threat and scale.threat(column.threat).scaled(column.factor)
                    asked = [self._asked(source, seed) for seed in self.seeds_of(source)]
                    cells[row.label, column.name] = [Question(column.ask, each, threat) for each in asked]
        return cells

    def folders(self) -> dict[Path, list[Question]]:
        """The questions about each model, by the folder of its outcomes."""
        folders: dict[Path, list[Question]] = {}
        for question in (question for questions in self.questions().values() for question in questions):
            folders.setdefault(question.asked.outcomes, []).append(question)
        return folders

    def _asked(self, source: Source, seed: int) -> Asked:
        model, chain = self.model(source, seed), self.grid.chain(source, seed)
        kept = chain[-1].folder if chain else self.grid.folder / f"judged-{Path(model).stem}"
        if self.grid.scale.papers_own and self.artefact.images == "all":  # a folder is for one set of images
            kept = kept.with_name(f"{kept.name}-on-all")
        return Asked(model, self.judged(source), kept, self.grid.scale, self.grid.device, self.grid.size(source))

    def inquiries(self, look: Look, seed: int) -> list[Inquiry]:
        """One of all models, or one of each where the analysis looks at each alone."""
        analysis, rows, grid = look.make(self.grid.scale), self.rows(), self.grid
        parts: Sequence[Sequence[Row]] = [[row] for row in rows] if analysis.alone else [rows]
        looked = [tuple(each for row in part for each in self._looked(row, seed, look.epochs)) for part in parts]
        judged, images = self.judged(rows[0].models["model"]), look.images(grid.scale)
        return [Inquiry(analysis, each, judged, images, grid.folder / "looked", grid.device) for each in looked]

    def _looked(self, row: Row, seed: int, epochs: bool) -> list[Looked]:
        source = row.models["model"]
        chain, size = self.grid.chain(source, seed), self.grid.size(source)
        if not epochs or not chain:
            return [Looked(row.label, self.model(source, seed), None, size)]
        return [Looked(row.label, str(path), float(epoch), size) for epoch, path in chain[-1].checkpoints().items()]

    def logs(self) -> dict[str, Path]:
        """Folders of the first seed's runs, by row."""
        chains = {row.label: self.grid.chain(row.models["model"], 0) for row in self.rows() if "model" in row.models}
        return {label: chain[-1].folder for label, chain in chains.items() if chain}
