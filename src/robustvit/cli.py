"""The command line: parse, call one library function, print. Torch is imported inside the verbs, so --help is quick."""

import os
import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from robustvit.errors import UserError, unknown


class Verbs(TyperGroup):
    """Says in one line why a verb stopped. Here rather than around `app()`, because typer takes Ctrl-C for itself."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # a reader that is gone is noticed now, not when the interpreter ends
            return result
        except UserError as error:
            sys.exit(f"error: {error}")
        except KeyboardInterrupt:
            print("stopped; the same command goes on from what is saved", file=sys.stderr)
            sys.exit(130)
        except BrokenPipeError:  # as in `robustvit list models | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        except OSError as error:  # a folder that cannot be written, a disk that is full
            sys.exit(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}")


app = typer.Typer(
    name="robustvit",
    cls=Verbs,
    help="Train, attack, evaluate and explain robust vision transformers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"robustvit {version('robustvit')}")
        raise typer.Exit


@app.callback()
def top(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """Train, attack, evaluate and explain robust vision transformers."""


Out = Annotated[Path | None, typer.Option("--out", help="The folder to write to; by default the run's own, or runs/NAME.")]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; by default what is there.")]
# What evaluate and analyze take alike; a run's own set and threat are the default of both.
Data = Annotated[str | None, typer.Option("--data", help="SOURCE or SOURCE:PATH; by default the run's own.")]
Size = Annotated[int | None, typer.Option("--size", help="Side of decoded images; by default the model's.")]
Resize = Annotated[int | None, typer.Option("--resize", help="Their shorter side before the centre crop.")]
Subset = Annotated[str | None, typer.Option("--subset", help="A list of test images, or robustbench.")]
DataFields = Annotated[
    list[str] | None, typer.Option("--data-field", help="FIELD=VALUE of the data, as in splits.test=extra; repeatable.")
]
Norm = Annotated[str | None, typer.Option("--norm", help="linf, l2 or l1; by default the run's own.")]
Eps = Annotated[str | None, typer.Option("--eps", help="As in 8/255; by default the run's own.")]
Count = Annotated[int | None, typer.Option("--images", help="The first N images; by default all.")]
SampleSeed = Annotated[int | None, typer.Option("--sample-seed", help="A sample of N images instead.")]


class Evidence(StrEnum):
    all = "all"
    none = "none"


def _leads() -> bool:
    """Of several processes one prints."""
    return os.environ.get("RANK", "0") == "0"


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
    track: Annotated[
        list[str] | None, typer.Option("--track", help="Show metrics in tensorboard, wandb, mlflow or trackio; repeatable.")
    ] = None,
    out: Out = None,
    device: Device = None,
) -> None:
    """Train a model by a recipe; the same command goes on where a stopped run was."""
    from robustvit.config import override
    from robustvit.recipes import get_recipe
    from robustvit.training.loop import fit

    resolved = override(get_recipe(recipe), overrides or [])
    folder = fit(resolved, out or Path("runs") / resolved.name, device, track=track or ())
    if _leads():
        print(f"trained: {folder}\nnext:    robustvit evaluate {folder}")


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A run folder, a checkpoint, zoo:NAME, or a timm name.")],
    data: Data = None,
    size: Size = None,
    resize: Resize = None,
    subset: Subset = None,
    fields: DataFields = None,
    suite: Annotated[str, typer.Option("--suite", help="quick, sweep (accuracy against eps) or autoattack.")] = "quick",
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Attacks instead, as in '{type: gama, steps: 50}'; repeatable.")
    ] = None,
    norm: Norm = None,
    eps: Eps = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps of PGD (quick, sweep); 50.")] = None,
    restarts: Annotated[int | None, typer.Option("--restarts", help="Random restarts of PGD (quick, sweep); 1.")] = None,
    variant: Annotated[str | None, typer.Option("--version", help="standard (the default), plus or rand (autoattack).")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="Of the attack: fp32 (the default), tf32 or bf16 (autoattack).")
    ] = None,
    images: Count = None,
    sample_seed: SampleSeed = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the attacks.")] = 0,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Images asked at once; by default found.")] = None,
    evidence: Annotated[
        Evidence, typer.Option("--evidence", help="Keep all adversarial examples of broken images, or none.")
    ] = Evidence.all,
    checks: Annotated[bool, typer.Option("--checks/--no-checks", help="Look for gradient masking.")] = True,
    compile_mode: Annotated[
        str, typer.Option("--compile", help="The attacked model: auto, never, default or another mode of torch.compile.")
    ] = "auto",
    out: Out = None,
    device: Device = None,
) -> None:
    """Attack a model and write the outcomes with their evidence; the same command goes on where a stopped one was."""
    from robustvit.evaluation import build_suite, told
    from robustvit.evaluation import evaluate as run_evaluation
    from robustvit.evaluation.defaults import defaults_of
    from robustvit.zoo.evidence import compared

    defaults = defaults_of(model)
    options = {"steps": steps, "restarts": restarts, "version": variant, "precision": precision, "seed": seed}
    attacks = build_suite(suite, defaults.threat(norm, eps), options, attack or ())
    folder = out or defaults.out
    outcomes = run_evaluation(
        model,
        defaults.data(data, size, resize, subset, fields or ()),
        attacks,
        folder,
        images,
        sample_seed,
        device,
        batch_size,
        evidence=evidence is Evidence.all,
        checks=checks,
        compile=compile_mode,  # type: ignore[arg-type]
    )
    if _leads():
        where = folder / "outcomes"
        print("\n".join([*told(outcomes), *compared(model, outcomes, where), f"outcomes: {where}"]))


@app.command()
def verify(
    outcome: Annotated[Path, typer.Argument(help="The .json of an outcome, beside its evidence.")],
    model: Annotated[str | None, typer.Option("--model", help="By default the one that the outcome names.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="By default the set that the outcome names.")] = None,
    device: Device = None,
) -> None:
    """Re-check an outcome's adversarial examples against model and data; exits with 1 if one does not hold."""
    from robustvit.evaluation.verify import verify as run_verification

    verification = run_verification(outcome, model, data, device)
    print(verification)
    if verification.violations:
        raise typer.Exit(1)


@app.command()
def analyze(
    name: Annotated[str, typer.Argument(help="A name of `robustvit list analyses`.")],
    models: Annotated[list[str], typer.Argument(help="As for evaluate; RUN/checkpoints/*.safetensors are a run's epochs.")],
    data: Data = None,
    size: Size = None,
    resize: Resize = None,
    subset: Subset = None,
    fields: DataFields = None,
    norm: Norm = None,
    eps: Eps = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="FIELD=VALUE of the analysis, as in steps=50.")] = None,
    images: Count = None,
    sample_seed: SampleSeed = None,
    out: Out = None,
    device: Device = None,
) -> None:
    """Look into models: attack effectiveness, convergence, eps sweep, semantic perturbations and more."""
    from robustvit.analysis.run import analyze as run_analysis
    from robustvit.analysis.run import build_analysis, defaults_for

    defaults = defaults_for(models)
    folder = out or defaults.out
    analysis = build_analysis(name, settings or [], defaults, norm, eps)
    chosen = defaults.data(data, size, resize, subset, fields or ())
    finding = run_analysis(analysis, models, chosen, folder, images, sample_seed, device)
    for line in finding.data["summary"]:
        print(line)
    print(f"analysis: {finding.path(folder)}")


@app.command()
def reproduce(
    artefact: Annotated[
        str | None, typer.Argument(help="PAPER/ARTEFACT, or several as in 'light-recipe/table-*'; '*' for all.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option("--scale", help="tiny (a CPU, minutes; the default), small (a GPU) or paper.")
    ] = None,
    places: Annotated[
        list[str] | None, typer.Option("--data", "--given", help="NAME=PATH of a set or of others' weights; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", help="Trainings of each model; by default the scale's.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Models to train or judge at a time, on one device.")] = 1,
    show: Annotated[bool, typer.Option("--list", help="List the artefacts.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and what it costs.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Make one page of all results there are.")] = False,
    cache: Annotated[Path | None, typer.Option("--cache", help="Where trained models are kept; runs/grid.")] = None,
    out: Out = None,
    device: Device = None,
) -> None:
    """Make a paper's table or figure again, and see the paper's numbers beside yours."""
    from robustvit.crew import Crew
    from robustvit.papers import run as papers

    if show:
        print("\n".join(papers.listing()))
        return
    if artefact is None:
        if not page:
            raise UserError("artefact: missing; accepted: a name of `robustvit reproduce --list`, or '*' for all of them")
        print(f"page: {papers.page(out, scale)}")
        return
    grid, crew = papers.make_grid(scale or "tiny", places or [], cache, device), Crew(jobs)
    if dry_run or scale == "paper":
        print("\n".join(papers.plan(artefact, grid, seeds, crew.jobs)), flush=True)
    if not dry_run:
        for result in papers.run(artefact, grid, out, seeds, crew):
            print(result, end="\n\n", flush=True)
        print(f"page: {papers.page(out, grid.scale.name)}")


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs or evaluations.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page; by default report.html in the run, or beside the runs.")
    ] = None,
) -> None:
    """Make one self-contained page of one run or several."""
    from robustvit.report import write_report

    print(f"report: {write_report(runs, out)}")


@app.command("list")
def list_names(
    what: Annotated[
        str | None, typer.Argument(metavar="WHAT", help="recipes, models, attacks, data, …; by default what there is.")
    ] = None,
    pattern: Annotated[str, typer.Argument(help="Only names that match, as in 'xcit*'.")] = "*",
) -> None:
    """List what there is by name."""
    from robustvit.listing import LISTS

    if what is None:
        print("\n".join(LISTS))
        return
    if what not in LISTS:
        raise unknown("list", what, LISTS)
    for line in LISTS[what](pattern):
        print(line)


def main() -> None:
    app()
