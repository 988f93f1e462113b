"""evaluate(): a model and a suite of attacks to Outcomes, each with its evidence."""

import platform
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, Queries
from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.errors import UserError
from robustvit.evaluation import masking, memory
from robustvit.evaluation.judge import Verdicts, alike, answers, attack_window, check_answers, check_fits, judging
from robustvit.evaluation.outcome import Outcome, file_name
from robustvit.evaluation.parts import EXAMPLES, digest, identity, merged, open_parts, plan
from robustvit.evaluation.suites import Suite
from robustvit.evaluation.tally import Tally
from robustvit.evaluation.team import Team
from robustvit.models import Classifier, fingerprint, load_model
from robustvit.progress import progress


def evaluate(
    model: str | Path | nn.Module,
    data: str | DataSpec | Images,
    suite: Suite,
    out: str | Path | None = None,
    images: int | None = None,
    sample_seed: int | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    window: int | None = None,
    evidence: bool = True,
    checks: bool = True,
) -> list[Outcome]:
    """Judge a model under every attack of the suite; with `out`, write the outcomes to OUT/outcomes.

    `images` takes the first so many, or with `sample_seed` a sample of that size. How many are attacked together (`window`) and
    asked for at once (`batch_size`) is found by what fits. With `out`, the same call goes on where a killed one was; `evidence`
    keeps the adversarial examples of broken images there. `checks` looks for signs that the attack was misled rather than the
    model robust. Under `accelerate launch` the processes share the images.
    """
    for name, value in (("batch_size", batch_size), ("window", window)):
        if value is not None and value < 1:
            raise UserError(f"{name}: {value}; accepted: 1 or more, or none to find it by what fits")
    team = Team.assemble(device)
    own = isinstance(model, nn.Module)
    modes = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    classifier = load_model(model).to(team.device)
    try:
        chosen, index, provenance = _choose(classifier, data, images, sample_seed, team)
        provenance["model"] = {"name": type(model).__name__ if own else str(model), "fingerprint": fingerprint(classifier)}
        folder = Path(out) / "outcomes" if out else None
        with judging(classifier):
            job = _Job(team, classifier, chosen, index, provenance, folder, evidence, checks, batch_size, window)
            return [job.run(attack, name) for attack, name in zip(suite, outcome_names(suite), strict=True)]
    finally:
        for module in modes:  # a module that came from Python keeps its mode
            module.training = True


def _choose(
    classifier: Classifier, data: str | DataSpec | Images, images: int | None, sample_seed: int | None, team: Team
) -> tuple[Images, Tensor, dict[str, Any]]:
    """The images to judge, their places in the set, and what is to be said of them."""
    spec = DataSpec.parse(data) if isinstance(data, str) else data
    if isinstance(spec, DataSpec):
        spec = spec.fitted(classifier.input_size, classifier.crop)  # recorded as what it came to
    everything = spec if isinstance(spec, Images) else spec.load("test")
    chosen, index = everything.first(images, sample_seed)
    check_fits(classifier, chosen)
    about = {
        "name": everything.name,
        "spec": None if isinstance(spec, Images) else to_data(spec),
        "size": len(everything),
        "sample_seed": sample_seed,
        "classes": chosen.classes,
        "digest": digest(chosen),
    }
    return chosen, index, {"model": {}, "data": about, "versions": versions(team.device)}


@dataclass
class _Job:
    """What the attacks of one evaluation share."""

    team: Team
    model: Classifier
    chosen: Images
    index: Tensor
    provenance: dict[str, Any]  # of model, data and versions
    out: Path | None
    evidence: bool
    checks: bool
    batch_size: int | None
    window: int | None
    suspicions: dict[str, list[masking.Suspicion]] = field(default_factory=dict)  # by norm

    def __post_init__(self) -> None:
        x, y = self._batch(0, 2)
        check_answers(self._ask(), x, self.chosen)
        self.batch_size = self.batch_size or memory.micro_batch(self._ask(), x, y)
        self.windows = plan(len(self.chosen), self.window or memory.window_size(x[0]), self.team.size)
        self.answers = answers(self._ask(), *self._batch(0, EXAMPLES))

    def run(self, attack: Attack | None, name: str) -> Outcome:
        folder = self.out / f"{file_name(name)}.windows" if self.out else None
        if self.team.leads:
            open_parts(folder, self._identity(attack), self.windows, self.evidence, self.answers)
        self.team.gather([])  # nobody looks for the plan before it is there
        parts = open_parts(folder, self._identity(attack), self.windows, self.evidence, self.answers)
        mine = range(self.team.rank, len(parts.windows), self.team.size)
        calls = sum(parts.windows[i][1] - parts.windows[i][0] for i in mine) * (attack.cost if attack else 1)
        done: list[tuple[int, Verdicts]] = []
        what = f"{self.provenance['model']['name']}: {name}"
        with progress(calls, what, "model calls", shown=self.team.leads) as advance:
            tally = Tally(advance, attack)
            for number in mine:
                begin, end = parts.windows[number]
                x, y = self._batch(begin, end)
                ask = self._ask(tally)
                tally.enter(end - begin)

                def save(verdicts: Verdicts, number: int = number) -> None:
                    parts.save(number, verdicts)
                    tally.stage_done(verdicts)

                verdicts = attack_window(ask, x, y, attack, parts.load(number, x), begin, save)
                self.batch_size = ask.ledger.size
                tally.leave(verdicts)
                done.append((number, verdicts.summary(EXAMPLES if number == 0 else 0)))
        everybody = [verdicts for _, verdicts in sorted(self.team.gather(done), key=lambda item: item[0])]
        outcome = self._outcome(attack, name, everybody, folder)
        if self.out and self.team.leads:
            outcome.save(self.out)
        return outcome

    def _outcome(self, attack: Attack | None, name: str, windows: list[Verdicts], folder: Path | None) -> Outcome:
        def joined(part: str) -> Any:
            return torch.cat([getattr(verdicts, part) for verdicts in windows]).numpy()

        stages = merged([verdicts.stages for verdicts in windows])
        arrays = {
            "index": self.index.numpy(),
            "y": joined("y"),
            "clean_prediction": joined("clean"),
            "attacked_prediction": joined("attacked"),
            "broken_by": joined("broken_by"),
            "example_image": self.chosen.batch(slice(EXAMPLES))[0].cpu().numpy(),
            "example_attacked": joined("examples"),
        }
        provenance = {
            **_describe(attack),
            "seconds": round(sum(stage["seconds"] for stage in stages), 3),
            "stages": stages,
            "checked": self.checks,
            "warnings": [asdict(suspicion) for suspicion in self._suspicions(attack, stages)],
            "evidence": folder.name if folder and attack and self.evidence else None,
            "processes": self.team.size,
            **self.provenance,
        }
        return Outcome(name, joined("correct"), provenance, arrays)

    def _suspicions(self, attack: Attack | None, stages: list[dict[str, Any]]) -> list[masking.Suspicion]:
        """The probe once for each norm, at the first eps asked for, on the first images that the model gets right."""
        if attack is None or not self.checks:
            return []
        threat = attack.threat
        if threat.norm not in self.suspicions:
            x, y = self._batch(0, min(len(self.chosen), 2 * masking.IMAGES))
            right = (self._ask()(x).argmax(1) == y).nonzero().squeeze(1)
            self.suspicions[threat.norm] = masking.probe(self._ask(), x[right], y[right], threat, attack.seed or 0)
        after = answers(self._ask(), *self._batch(0, EXAMPLES))
        changed = masking.of_answers(alike(self.answers, after), min(len(self.chosen), EXAMPLES))
        return self.suspicions[threat.norm] + changed + masking.of_stages(stages, len(self.chosen))

    def _ask(self, tally: Tally | None = None) -> Queries:
        ask = Queries(self.model, precision="fp32")
        ask.ledger.size, ask.ledger.watch = self.batch_size, tally.asked if tally else None
        return ask

    def _batch(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        x, y = self.chosen.batch(slice(begin, end))
        return x.to(self.team.device), y.to(self.team.device)

    def _identity(self, attack: Attack | None) -> dict[str, Any]:
        """Two evaluations with the same are one, which may go on where it stopped."""
        return identity(_describe(attack), self.provenance, self.index)


def outcome_names(suite: Suite) -> list[str]:
    """A name for each attack, numbered where several have the same."""
    names = [f"{attack.name} {attack.threat.norm} {attack.threat.eps:.6g}" if attack else "clean" for attack in suite]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        names[i] = f"{name} #{seen[name]}" if seen[name] > 1 else name
    return names


def _describe(attack: Attack | None) -> dict[str, Any]:
    if attack is None:
        return {"threat": None, "attack": None, "seed": None, "draws": 1}
    return {"threat": to_data(attack.threat), "attack": to_data(attack), "seed": attack.seed, "draws": attack.draws}


def versions(device: torch.device) -> dict[str, str]:
    packages = {name: version(name) for name in ("robustvit", "torch", "torchvision", "timm", "numpy")}
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine() + " CPU"
    return {**packages, "python": platform.python_version(), "device": hardware}
