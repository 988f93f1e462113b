"""What a report knows of a run, read from its files alone: a report never runs a model."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robustvit import config, storage
from robustvit.analysis import ANALYSES, Finding
from robustvit.analysis.finding import FOLDER
from robustvit.config import Recipe
from robustvit.data import DataSpec
from robustvit.errors import UserError, unknown
from robustvit.evaluation.outcome import Outcome

FEW = 100  # images: fewer are a trial


@dataclass(frozen=True, slots=True)
class RunContents:
    name: str
    recipe: str | None
    model: str | None
    metrics: list[dict[str, Any]]
    selected_by: str  # the attack whose held-out accuracy chose the best weights, or clean
    outcomes: list[Outcome]  # clean first, then by eps
    findings: list[Finding]  # in the order of ANALYSES

    @property
    def warnings(self) -> list[dict[str, Any]]:
        """Signs that an attack was misled, each once, with the outcomes that it is about."""
        found: dict[str, dict[str, Any]] = {}
        for outcome in self.outcomes:
            for warning in outcome.provenance["warnings"]:
                entry = found.setdefault(warning["name"] + warning["message"], {**warning, "outcomes": []})
                entry["outcomes"].append(outcome.name)
        return list(found.values())

    @property
    def unchecked(self) -> bool:
        """Was an attack trusted without looking for such signs?"""
        return any(not outcome.provenance["checked"] for outcome in self.attacked)

    @property
    def about(self) -> str:
        """Model and set, as far as the files tell."""
        told = [self.model] if self.model else []
        if self.outcomes:
            told.append(self.outcomes[0].provenance["data"]["name"])
        return " on ".join(told)

    @property
    def attacked(self) -> list[Outcome]:
        return [o for o in self.outcomes if o.provenance["attack"] is not None]

    def headline(self, threat: tuple[str, float] | None) -> tuple[Outcome | None, Outcome | None]:
        """Clean accuracy, and the strongest attack within the threat that the page is about: both on the same images.

        Of several choices of images the one that an ensemble such as AutoAttack has judged, unless those are few; then the
        larger one.
        """

        def weight(group: list[Outcome]) -> tuple[bool, bool, int]:
            within = _within(group, threat)
            ensemble = any(o.provenance["attack"]["type"] == "worst_of" for o in within)
            return bool(within), ensemble and group[0].n >= FEW, group[0].n

        group = max(on_same_images(self.outcomes), key=weight, default=[])
        return clean_of(group), min(_within(group, threat), key=_weakness, default=None)

    def curve(self, norm: str) -> list[tuple[float, Outcome]]:
        """The worst outcome at each eps, 0 among them, on the choice of images that has the most of them."""
        curves = [_worst_by_eps(group, norm) for group in on_same_images(self.outcomes)]
        return sorted(
            max(curves, key=lambda worst: (len(worst), max((o.n for o in worst.values()), default=0)), default={}).items()
        )


def read_run(folder: Path) -> RunContents:
    recipe, metrics = folder / "recipe.yaml", folder / "metrics.jsonl"
    outcomes = [Outcome.load(path) for path in (folder / "outcomes").glob("*.json")]
    findings = _findings(folder / FOLDER)
    if not outcomes and not findings and not recipe.exists():
        raise UserError(
            f"run {str(folder)!r}: holds neither recipe.yaml nor outcomes/ nor {FOLDER}/; "
            f"accepted: folders of train, evaluate or analyze{_within_it(folder)}"
        )
    _of_one_model(folder, outcomes)
    _of_this_run(folder, outcomes)
    held = _understood(recipe)
    return RunContents(
        folder.resolve().name,
        recipe.read_text(errors="replace") if recipe.exists() else None,
        held.model.name if held else None,
        read_log(metrics) if metrics.exists() else [],
        held.select.name if held and held.select else "clean",
        sorted(outcomes, key=lambda o: (o.provenance["attack"] is not None, o.eps, o.name)),
        findings,
    )


def _within_it(folder: Path) -> str:
    kinds = ("recipe.yaml", "outcomes", FOLDER)
    found = sorted({str(path.parent) for kind in kinds for path in folder.glob(f"*/{kind}")})
    return f", such as {' and '.join(found)}" if found else ""


def _understood(path: Path) -> Recipe | None:
    """A page shows a recipe as it stands, whether or not this version can train by it."""
    try:
        return config.load(path) if path.exists() else None
    except UserError:
        return None


def _of_one_model(folder: Path, outcomes: list[Outcome]) -> None:
    """Numbers of two models, or of two sets of images, must not stand under one name."""
    judged = [(o.provenance["model"]["fingerprint"], _set_of(o.provenance["data"])) for o in outcomes]
    for outcome, other in zip(outcomes, judged, strict=True):
        if other != judged[0]:
            first, data = outcomes[0], outcome.provenance["data"]
            raise UserError(
                f"run {str(folder)!r}: {first.name!r} is of model {judged[0][0]} on {_said(first.provenance['data'])}, "
                f"{outcome.name!r} of {other[0]} on {_said(data)}; accepted: one model on one set of images. "
                "Evaluate each into its own --out"
            )


def _of_this_run(folder: Path, outcomes: list[Outcome]) -> None:
    """Numbers of another model must not stand under this run's recipe and curves."""
    made = {storage.read_meta(path).get("fingerprint") for path in (folder / "checkpoints").glob("*.safetensors")} - {None}
    for outcome in outcomes:
        judged = outcome.provenance["model"]["fingerprint"]
        if made and judged not in made:
            raise UserError(
                f"run {str(folder)!r}: {outcome.name!r} is of model {judged}, the run's own weights are "
                f"{', '.join(sorted(map(str, made)))}; accepted: outcomes of the run's own model"
            )


def check_comparable(runs: list[RunContents]) -> None:
    """Side by side, numbers of two sets would be compared."""
    judged = [(run.name, run.outcomes[0].provenance["data"]) for run in runs if run.outcomes]
    for name, data in judged:
        first, of_first = judged[0]
        if _set_of(data) != _set_of(of_first):
            raise UserError(
                f"runs: {first!r} was judged on {_said(of_first)}, {name!r} on {_said(data)}; accepted: runs judged on "
                "one set, or a page for each"
            )


def _set_of(data: dict[str, Any]) -> str:
    """What tells a set from others: its images, or its name where each model sees the images of files at a size of its own."""
    decodes = data["spec"] is not None and config.from_data(DataSpec, data["spec"]).decodes
    return str(data["name"] if decodes else data["digest"])


def _said(data: dict[str, Any]) -> str:
    return f"{data['name']} (digest {data['digest']})"


def _findings(folder: Path) -> list[Finding]:
    findings = {}
    for path in folder.glob("*.json"):
        finding = Finding.load(path)
        if finding.name not in ANALYSES:
            raise unknown(f"{path}: analysis", finding.name, ANALYSES)
        findings[finding.name] = finding
    return [findings[name] for name in ANALYSES if name in findings]


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    records = []
    whole = path.read_text(errors="replace").rpartition("\n")[0]  # a run that was killed may end in half a line
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("epoch"), int | float):
                raise ValueError("no epoch in it")
            records.append(record)
        except ValueError as error:
            raise UserError(
                f"{path}: line {number} is no record of training ({error}); once it is mended or removed, the page can be made"
            ) from None
    return records


def on_same_images(outcomes: list[Outcome]) -> list[list[Outcome]]:
    """Grouped by the images that they judged: numbers of different ones may stand in a table, but in no curve or pair."""
    groups: dict[bytes, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.arrays["index"].tobytes(), []).append(outcome)
    return list(groups.values())


def clean_of(group: list[Outcome]) -> Outcome | None:
    return next((o for o in group if o.provenance["attack"] is None), None)


def _within(group: list[Outcome], threat: tuple[str, float] | None) -> list[Outcome]:
    return [o for o in group if o.provenance["attack"] is not None and threat_of(o) == threat]


def _weakness(outcome: Outcome) -> tuple[float, int]:
    """The smaller, the more the attack achieved; of two that achieved as much, the one that asked more."""
    return outcome.accuracy, -sum(stage["forward"] + stage["backward"] for stage in outcome.provenance["stages"])


def _worst_by_eps(group: list[Outcome], norm: str) -> dict[float, Outcome]:
    clean = clean_of(group)
    worst = {0.0: clean} if clean else {}
    for outcome in group:
        if outcome.provenance["attack"] is not None and threat_of(outcome)[0] == norm:
            eps = outcome.eps
            worst[eps] = min(worst.get(eps, outcome), outcome, key=_weakness)
    return worst


def threat_of(outcome: Outcome) -> tuple[str, float]:
    threat = outcome.provenance["threat"]
    return threat["norm"], threat["eps"]


def main_threat(runs: list[RunContents]) -> tuple[str, float] | None:
    """The threat that most outcomes share: in a sweep, the one that was asked for."""
    counted = Counter(threat_of(o) for run in runs for o in run.attacked)
    return counted.most_common(1)[0][0] if counted else None
