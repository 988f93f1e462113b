"""The command line: parse, call one library function, print. Torch is imported inside the verbs, so --help is quick."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from robustvit.errors import UserError, unknown

app = typer.Typer(
    name="robustvit",
    help="Train, attack, evaluate and explain robust vision transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path | None, typer.Option("--out", help="The folder to write to.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; by default what is there.")]


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", help="The folder to write to.")] = Path("runs/demo")) -> None:
    """Watch a standard ViT fall and a robust one stand, on handwritten digits, in two minutes."""
    from robustvit.demo import demo as run_demo

    table, page = run_demo(out)
    print(f"{table}\nreport: {page}")


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A name of `robustvit list recipes`, or a recipe.yaml.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="dotted.field=value, as in optim.lr=1e-3.")] = None,
    out: Out = None,
    device: Device = None,
) -> None:
    """Train a model by a recipe; the same command goes on where a stopped run was."""
    from robustvit.config import override
    from robustvit.recipes import get_recipe
    from robustvit.training.loop import fit

    resolved = override(get_recipe(recipe), overrides or [])
    folder = fit(resolved, out or Path("runs") / resolved.name, device)
    print(f"trained: {folder}\nnext:    robustvit evaluate {folder}")


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run folder, a checkpoint, or a timm name.")],
    data: Annotated[str | None, typer.Option("--data", help="SOURCE or SOURCE:PATH; by default the run's own.")] = None,
    suite: Annotated[str, typer.Option("--suite", help="quick (clean, FGSM, PGD) or sweep (accuracy against eps).")] = "quick",
    norm: Annotated[str | None, typer.Option("--norm", help="linf, l2 or l1; by default the run's own.")] = None,
    eps: Annotated[str | None, typer.Option("--eps", help="As in 8/255; by default the run's own.")] = None,
    steps: Annotated[int, typer.Option("--steps", help="Steps of PGD.")] = 50,
    restarts: Annotated[int, typer.Option("--restarts", help="Random restarts of PGD.")] = 1,
    images: Annotated[int | None, typer.Option("--images", help="The first N images; by default all.")] = None,
    sample_seed: Annotated[int | None, typer.Option("--sample-seed", help="A sample of N images instead.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the attacks.")] = 0,
    batch_size: Annotated[int, typer.Option("--batch-size")] = 256,
    out: Out = None,
    device: Device = None,
) -> None:
    """Attack a model and write the outcomes with their evidence."""
    from robustvit.evaluation import SUITES
    from robustvit.evaluation import evaluate as run_evaluation
    from robustvit.evaluation.defaults import defaults_of

    defaults = defaults_of(model)
    if suite not in SUITES:
        raise unknown("suite", suite, SUITES)
    attacks = SUITES[suite](defaults.threat(norm, eps), steps=steps, restarts=restarts, seed=seed)
    folder = out or defaults.out
    for outcome in run_evaluation(model, defaults.data(data), attacks, folder, images, sample_seed, device, batch_size):
        print(outcome)
    print(f"outcomes: {folder / 'outcomes'}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs or evaluations.")],
    out: Annotated[Path | None, typer.Option("--out", help="The page; by default report.html in the first run.")] = None,
) -> None:
    """Make one self-contained page of one run or several."""
    from robustvit.report import write_report

    print(f"report: {write_report(runs, out or runs[0] / 'report.html')}")


@app.command("list")
def list_names(
    what: Annotated[str, typer.Argument(help="recipes, models, attacks or data.")],
    pattern: Annotated[str, typer.Argument(help="Only names that match, as in 'xcit*'.")] = "*",
) -> None:
    """List what there is by name."""
    from robustvit.listing import LISTS

    if what not in LISTS:
        raise unknown("list", what, LISTS)
    for line in LISTS[what](pattern):
        print(line)


def main() -> None:
    try:
        app()
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on from the last checkpoint")
    except BrokenPipeError:  # as in `robustvit list models | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
