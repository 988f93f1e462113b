"""evaluate(): a model and a suite of attacks to Outcomes, each with its evidence."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from robustvit.attacks import Attack, Queries
from robustvit.attacks.base import check_judges
from robustvit.compiling import Compile
from robustvit.config import to_data
from robustvit.errors import UserError
from robustvit.evaluation import masking, memory
from robustvit.evaluation.choice import Choice, Data, choose
from robustvit.evaluation.fits import check_answers
from robustvit.evaluation.judge import Answers, Verdicts, alike, answers, attack_window, judging
from robustvit.evaluation.outcome import Outcome, file_name
from robustvit.evaluation.parts import EXAMPLES, Parts, free_name, identity, merged, open_parts, plan
from robustvit.evaluation.place import check_place
from robustvit.evaluation.speed import choose as choose_speed
from robustvit.evaluation.suites import Suite
from robustvit.evaluation.tally import Tally
from robustvit.evaluation.team import Team
from robustvit.models import Classifier, fingerprint, load_model
from robustvit.progress import progress
from robustvit.versions import versions


def evaluate(
    model: str | Path | nn.Module,
    data: Data,
    suite: Suite | Attack,
    out: str | Path | None = None,
    images: int | None = None,
    sample_seed: int | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    window: int | None = None,
    evidence: bool = True,
    checks: bool = True,
    compile: Compile = "auto",
) -> list[Outcome]:
    """Judge a model under an attack or every one of a suite; with `out`, write the outcomes to OUT/outcomes.

    `data` is text such as cifar10:PATH, or images in [0, 1] and labels from Python: `Images`, or tensors (x [N, C, H, W], y).

    `images` takes the first so many, or with `sample_seed` a sample of that size. How many are attacked together (`window`) and
    asked for at once (`batch_size`) is found by what fits. With `out`, the same call goes on where a killed one was; `evidence`
    keeps the adversarial examples of broken images there. `checks` looks for signs that the attack was misled rather than the
    model robust. `compile` concerns the attacks alone. Under `accelerate launch` the processes share the images.
    """
    for name, value in (("batch_size", batch_size), ("window", window)):
        if value is not None and value < 1:
            raise UserError(f"{name}: {value}; accepted: 1 or more, or none to find it by what fits")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise UserError(f"out: {str(out)!r} is a file; accepted: a folder, new or of this model")
    attacks = _listed(suite)
    team = Team.assemble(device)
    own = isinstance(model, nn.Module)
    modes = [module for module in model.modules() if module.training] if isinstance(model, nn.Module) else []
    classifier = load_model(model).to(team.device)
    try:
        choice = choose(classifier, data, images, sample_seed)
        for attack in filter(None, attacks):
            attack.threat.check_fits(choice.everything.shape)
        about = {"name": type(model).__name__ if own else str(model), "fingerprint": fingerprint(classifier)}
        provenance = {"model": about, "data": choice.about, "versions": versions(team.device)}
        folder = Path(out) / "outcomes" if out else None
        with judging(classifier):
            job = _Job(team, classifier, choice, provenance, folder, evidence, checks, compile, attacks, batch_size, window)
            return [job.run(attack) for attack in attacks]
    finally:
        for module in modes:  # a module that came from Python keeps its mode
            module.training = True


def _listed(suite: Suite | Attack) -> Suite:
    attacks: Suite = [suite] if isinstance(suite, Attack) else suite
    if not isinstance(attacks, list | tuple) or not all(attack is None or isinstance(attack, Attack) for attack in attacks):
        raise UserError(f"suite: {suite!r}; accepted: an attack, or a suite such as robustvit.quick(threat)")
    for attack in attacks:
        check_judges(attack)
    return attacks


@dataclass
class _Job:
    """What the attacks of one evaluation share."""

    team: Team
    model: Classifier
    choice: Choice
    provenance: dict[str, Any]  # of model, data and versions
    out: Path | None
    evidence: bool
    checks: bool
    compile: Compile
    suite: Suite
    batch_size: int | None
    window: int | None
    suspicions: dict[str, list[masking.Suspicion]] = field(default_factory=dict)  # by norm
    names: list[str] = field(default_factory=list)  # of the outcomes so far

    def __post_init__(self) -> None:
        x, y = self._batch(0, 2)
        check_answers(self._ask(), x, self.choice.everything)
        self.classes = int(self._ask()(x).shape[1])
        self.batch_size = self.batch_size or memory.micro_batch(self._ask(), x, y)
        own = plan(len(self.choice.images), self.window or memory.window_size(x[0]), self.team.size)
        self.windows = self.team.gather([own])[0]  # the leader's for all: each may have other memory free
        x, y = self._batch(0, min(self.batch_size, self.windows[0][1]))
        share = -(-len(self.choice.images) // self.team.size)
        self.speed = choose_speed(self.compile, self._ask(), x, y, self.suite, self.classes, share)
        self.answers = self._answers()
        if self.out:
            check_place(self.out, self.provenance["model"]["fingerprint"], self.answers, self.provenance["data"]["digest"])

    def run(self, attack: Attack | None) -> Outcome:
        if self.team.leads:
            self._open(attack)
        self.team.gather([])  # nobody looks for the plan before it is there
        name, folder, parts = self._open(attack)
        self.names.append(name)
        mine = range(self.team.rank, len(parts.windows), self.team.size)
        calls = sum(parts.windows[i][1] - parts.windows[i][0] for i in mine) * (attack.cost(self.classes) if attack else 1)
        done: list[tuple[int, Verdicts]] = []
        self.speed.warm(self._ask(), attack, *self._batch(0, 2))
        what = f"{Path(self.provenance['model']['name']).name}: {name}"
        with progress(calls, what, "model calls", shown=self.team.leads) as advance:
            tally = Tally(advance, attack, self.classes)
            for number in mine:
                begin, end = parts.windows[number]
                x, y = self._batch(begin, end)
                ask = self.speed.sped_up(self._ask(tally))
                tally.enter(end - begin)

                def save(verdicts: Verdicts, number: int = number) -> None:
                    parts.save(number, verdicts)
                    tally.stage_done(verdicts)

                if (known := parts.load(number, x)) is not None:
                    tally.stage_done(known)
                verdicts = attack_window(ask, x, y, attack, known, begin, save)
                self.batch_size = ask.ledger.size
                tally.leave(verdicts)
                done.append((number, verdicts.summary(EXAMPLES if number == 0 else 0)))
        everybody = [verdicts for _, verdicts in sorted(self.team.gather(done), key=lambda item: item[0])]
        outcome = self._outcome(attack, name, everybody, folder)
        if self.out and self.team.leads:
            outcome.save(self.out)
        return outcome

    def _open(self, attack: Attack | None) -> tuple[str, Path | None, Parts]:
        """The outcome's name, and the folder of its windows with what is in it."""
        wanted = self._identity(attack)
        name = free_name(self.out, outcome_name(attack), wanted, self.evidence, self.names)
        folder = self.out / f"{file_name(name)}.windows" if self.out else None
        return name, folder, open_parts(folder, wanted, self.windows, self.evidence, self.answers)

    def _outcome(self, attack: Attack | None, name: str, windows: list[Verdicts], folder: Path | None) -> Outcome:
        def joined(part: str) -> Any:
            return torch.cat([getattr(verdicts, part) for verdicts in windows]).numpy()

        stages = merged([verdicts.stages for verdicts in windows])
        checked, warnings = self._looked_for(attack, stages, name)
        arrays = {
            "index": self.choice.index.numpy(),
            "y": joined("y"),
            "clean_prediction": joined("clean"),
            "attacked_prediction": joined("attacked"),
            "broken_by": joined("broken_by"),
            "example_image": self.choice.images.batch(slice(EXAMPLES))[0].cpu().numpy(),
            "example_attacked": joined("examples"),
        }
        provenance = {
            **_describe(attack),
            "seconds": round(sum(stage["seconds"] for stage in stages), 3),
            "stages": stages,
            "compile": {"mode": self.speed.mode, "seconds": round(self.speed.seconds, 3)},
            "checked": checked,
            "warnings": warnings,
            "evidence": folder.name if folder and attack and self.evidence else None,
            "processes": self.team.size,
            **self.provenance,
        }
        return Outcome(name, joined("correct"), provenance, arrays)

    def _looked_for(self, attack: Attack | None, stages: list[dict[str, Any]], name: str) -> tuple[bool, list[dict[str, Any]]]:
        """Were signs of gradient masking looked for, and which were found; what an earlier call found stays."""
        if attack is None:
            return self.checks, []
        if self.checks:
            return True, [asdict(suspicion) for suspicion in self._suspicions(attack, stages)]
        path = self.out / f"{file_name(name)}.json" if self.out else None
        if path is None or not path.exists():
            return False, []
        earlier = Outcome.load(path).provenance
        return earlier["checked"], earlier["warnings"]

    def _suspicions(self, attack: Attack, stages: list[dict[str, Any]]) -> list[masking.Suspicion]:
        """The probe once for each norm, at the first eps asked for, on the first images that the model gets right."""
        threat = attack.threat
        if threat.norm not in self.suspicions:
            x, y = self._batch(0, min(len(self.choice.images), 2 * masking.IMAGES))
            right = (self._ask()(x).argmax(1) == y).nonzero().squeeze(1)
            self.suspicions[threat.norm] = masking.probe(self._ask(), x[right], y[right], threat, attack.seed or 0)
        changed = masking.of_answers(alike(self.answers, self._answers()), len(self.answers))
        few = masking.of_classes(attack, self.classes)
        return self.suspicions[threat.norm] + few + changed + masking.of_stages(stages, len(self.choice.images))

    def _answers(self) -> Answers:
        """To the first images of the set, whichever of them are judged."""
        x, y = self.choice.everything.batch(slice(EXAMPLES))
        return answers(self._ask(), x.to(self.team.device), y.to(self.team.device))

    def _ask(self, tally: Tally | None = None) -> Queries:
        ask = Queries(self.model, precision="fp32")
        ask.ledger.size, ask.ledger.watch = self.batch_size, tally.asked if tally else None
        return ask

    def _batch(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        x, y = self.choice.images.batch(slice(begin, end))
        return x.to(self.team.device), y.to(self.team.device)

    def _identity(self, attack: Attack | None) -> dict[str, Any]:
        """Two evaluations with the same are one, which may go on where it stopped."""
        return identity(_describe(attack), self.provenance, self.choice.index)


def outcome_name(attack: Attack | None) -> str:
    return f"{attack.name} {attack.threat.norm} {attack.threat.eps:.6g}" if attack else "clean"


def _describe(attack: Attack | None) -> dict[str, Any]:
    if attack is None:
        return {"threat": None, "attack": None, "seed": None, "draws": 1}
    return {"threat": to_data(attack.threat), "attack": to_data(attack), "seed": attack.seed, "draws": attack.draws}
