"""evaluate(): a model and a suite of attacks to Outcomes, each with its evidence."""

import hashlib
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, Queries
from robustvit.config import to_data
from robustvit.data import DataSpec, Images
from robustvit.evaluation import masking, memory
from robustvit.evaluation.judge import Verdicts, attack_window, check_fits, draws_of, judging
from robustvit.evaluation.outcome import Outcome, file_name
from robustvit.evaluation.parts import EXAMPLES, digest, open_parts, plan
from robustvit.evaluation.suites import Suite
from robustvit.evaluation.tally import Tally
from robustvit.evaluation.team import Team
from robustvit.models import fingerprint, load_model
from robustvit.progress import progress
from robustvit.threat import Threat

PROBED = 64  # images for the checks against gradient masking


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
    asked for at once (`batch_size`) is found by what fits. With `out`, the same call goes on where a killed one was. `evidence` keeps the adversarial examples of
    broken images, `checks` looks for signs that the attack was misled rather than the model robust. Under `accelerate launch`
    the processes share the images.
    """
    team = Team.assemble(device)
    name = type(model).__name__ if isinstance(model, nn.Module) else str(model)
    classifier = load_model(model).to(team.device)
    spec = DataSpec.parse(data) if isinstance(data, str) else data
    if isinstance(spec, DataSpec):
        spec = spec.fitted(classifier.input_size, classifier.crop)  # recorded as what it came to
    everything = spec if isinstance(spec, Images) else spec.load("test")
    chosen, index = everything.first(images, sample_seed)
    check_fits(classifier, chosen)
    common = {
        "model": {"name": name, "fingerprint": fingerprint(classifier)},
        "data": {
            "name": everything.name,
            "spec": None if isinstance(spec, Images) else to_data(spec),
            "size": len(everything),
            "sample_seed": sample_seed,
            "classes": chosen.classes,
            "digest": digest(chosen),
        },
        "versions": versions(team.device),
    }
    with judging(classifier):
        folder = Path(out) / "outcomes" if out else None
        job = _Job(team, classifier, chosen, index, common, folder, evidence, batch_size, window)
        return [job.run(attack, checks) for attack in suite]


class _Job:
    """What the attacks of one evaluation share."""

    def __init__(
        self,
        team: Team,
        model: nn.Module,
        chosen: Images,
        index: Tensor,
        common: dict[str, Any],
        out: Path | None,
        evidence: bool,
        batch_size: int | None,
        window: int | None,
    ) -> None:
        self.team, self.model, self.chosen, self.index = team, model, chosen, index
        self.common, self.out, self.evidence = common, out, evidence
        first = self._batch(0, 2)
        self.batch_size = batch_size or memory.micro_batch(Queries(model, precision="fp32"), *first)
        self.windows = plan(len(chosen), window or memory.window_size(first[0][0]), team.size)
        self.suspicions: dict[Threat, list[masking.Suspicion]] = {}

    def run(self, attack: Attack | None, checks: bool) -> Outcome:
        stem = file_name(outcome_name(attack))
        folder = self.out / f"{stem}.windows" if self.out else None
        if self.team.leads:
            open_parts(folder, self._identity(attack), self.windows, self.evidence)
        self.team.gather([])
        parts = open_parts(folder, self._identity(attack), self.windows, self.evidence)
        mine = range(self.team.rank, len(parts.windows), self.team.size)
        images = sum(parts.windows[number][1] - parts.windows[number][0] for number in mine)
        cost = attack.cost if attack else 1
        done: list[tuple[int, Verdicts]] = []
        what = f"{self.common['model']['name']}: {outcome_name(attack)}"
        with progress(images * cost, what, "model calls", shown=self.team.leads) as advance:
            tally = Tally(advance, attack)
            for number in mine:
                begin, end = parts.windows[number]
                x, y = self._batch(begin, end)
                ask = Queries(self.model, precision="fp32")
                ask.ledger.size, ask.ledger.watch = self.batch_size, tally.asked
                tally.enter(end - begin)

                def save(verdicts: Verdicts, number: int = number) -> None:
                    parts.save(number, verdicts)
                    tally.stage_done(verdicts)

                verdicts = attack_window(ask, x, y, attack, parts.load(number, x), begin, save)
                self.batch_size = ask.ledger.size
                tally.leave(verdicts)
                done.append((number, verdicts.summary(EXAMPLES if number == 0 else 0)))
        everybody = [verdicts for _, verdicts in sorted(self.team.gather(done), key=lambda item: item[0])]
        outcome = self._outcome(attack, everybody, checks, folder)
        if self.out and self.team.leads:
            outcome.save(self.out)
        return outcome

    def _outcome(self, attack: Attack | None, windows: list[Verdicts], checks: bool, folder: Path | None) -> Outcome:
        def joined(name: str) -> Any:
            return torch.cat([getattr(verdicts, name) for verdicts in windows]).numpy()

        stages = _merged([verdicts.stages for verdicts in windows])
        arrays = {
            "index": self.index.numpy(),
            "y": joined("y"),
            "clean_prediction": joined("clean"),
            "attacked_prediction": joined("attacked"),
            "broken_by": joined("broken_by"),
            "example_image": self.chosen.batch(slice(EXAMPLES))[0].cpu().numpy(),
            "example_attacked": joined("examples"),
        }
        suspicions = self._suspicions(attack, stages) if attack and checks else []
        provenance = {
            **_describe(attack),
            "seconds": round(sum(stage["seconds"] for stage in stages), 3),
            "stages": stages,
            "checked": checks,
            "warnings": [asdict(suspicion) for suspicion in suspicions],
            "evidence": folder.name if folder and attack and self.evidence else None,
            "processes": self.team.size,
            **self.common,
        }
        return Outcome(outcome_name(attack), joined("correct"), provenance, arrays)

    def _suspicions(self, attack: Attack, stages: list[dict[str, Any]]) -> list[masking.Suspicion]:
        """The probe once for each threat, on the first images that the model gets right."""
        if attack.threat not in self.suspicions:
            x, y = self._batch(0, min(len(self.chosen), 2 * PROBED))
            ask = Queries(self.model, precision="fp32")
            ask.ledger.size = self.batch_size
            right = (ask(x).argmax(1) == y).nonzero().squeeze(1)[:PROBED]
            self.suspicions[attack.threat] = masking.probe(ask, x[right], y[right], attack.threat, attack.seed or 0)
        return self.suspicions[attack.threat] + masking.of_stages(stages, len(self.chosen))

    def _batch(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        x, y = self.chosen.batch(slice(begin, end))
        return x.to(self.team.device), y.to(self.team.device)

    def _identity(self, attack: Attack | None) -> dict[str, Any]:
        """Two evaluations with the same are one, which may go on where it stopped."""
        chosen = hashlib.sha256(self.index.numpy().tobytes()).hexdigest()[:16]
        model, data = self.common["model"]["fingerprint"], self.common["data"]["digest"]
        of = {"model": model, "data": data, "chosen": chosen, "robustvit": self.common["versions"]["robustvit"]}
        return {**_describe(attack), **of}


def _merged(windows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The stages of all windows added up."""
    merged = []
    for stages in zip(*windows, strict=True):
        sums = {key: sum(stage[key] for stage in stages) for key in ("entered", "broken", "forward", "backward", "seconds")}
        merged.append({"name": stages[0]["name"], **sums, "seconds": round(sums["seconds"], 3)})
    return merged


def outcome_name(attack: Attack | None) -> str:
    return f"{attack.name} {attack.threat.norm} {attack.threat.eps:.6g}" if attack else "clean"


def _describe(attack: Attack | None) -> dict[str, Any]:
    if attack is None:
        return {"threat": None, "attack": None, "seed": None, "draws": 1}
    return {"threat": to_data(attack.threat), "attack": to_data(attack), "seed": attack.seed, "draws": draws_of(attack)}


def versions(device: torch.device) -> dict[str, str]:
    packages = {name: version(name) for name in ("robustvit", "torch", "torchvision", "timm", "numpy")}
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine() + " CPU"
    return {**packages, "python": platform.python_version(), "device": hardware}
