"""The demonstration: the same small ViT trained twice, attacked, and shown side by side."""

import sys
from functools import partial
from pathlib import Path

from robustvit.config import Recipe
from robustvit.crew import Crew
from robustvit.device import one_thread
from robustvit.evaluation import Outcome, evaluate, sweep
from robustvit.recipes.digits import THREAT, digits_robust, digits_standard
from robustvit.report import write_report
from robustvit.training.loop import fit


def demo(out: Path) -> tuple[str, Path]:
    """(a short table, the report's path). On the CPU: for models this small a GPU is no faster."""
    standard, robust = digits_standard(), digits_robust()
    print(f"{standard.name} is trained and attacked in the background, {robust.name} is shown", file=sys.stderr)
    judge = partial(train_and_judge, out=out)
    with one_thread(), Crew(2) as crew:  # the one in another process, while this one shows how far the other is
        beside = crew.start(judge, standard)
        of_robust = judge(robust)
        results = {standard.name: crew.result(beside), robust.name: of_robust}
    return table(results), write_report([out / name for name in results], out / "report.html")


def train_and_judge(recipe: Recipe, out: Path) -> list[Outcome]:
    folder = fit(recipe, out / recipe.name, device="cpu")
    return evaluate(folder, "digits", sweep(THREAT), folder, device="cpu")


def table(results: dict[str, list[Outcome]]) -> str:
    """Accuracy without an attack, and under FGSM and PGD at the demo's eps."""
    shown = [o for o in next(iter(results.values())) if o.eps in (0.0, THREAT.eps)]
    lines = [f"{f'accuracy (n = {shown[0].n})':<20}" + "".join(f"{o.name:>20}" for o in shown)]
    for name, outcomes in results.items():
        by_name = {o.name: o.accuracy for o in outcomes}
        lines.append(f"{name:<20}" + "".join(f"{by_name[o.name]:>20.1%}" for o in shown))
    return "\n".join(lines)
