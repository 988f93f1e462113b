"""The folder that outcomes go to: of one model on one set of images."""

import json
from pathlib import Path

from robustvit import storage
from robustvit.errors import UserError
from robustvit.evaluation.judge import Answers, alike
from robustvit.evaluation.parts import read_plan


def check_place(out: Path, model: str, answers: Answers, data: str) -> None:
    """Refuse a folder OUT/outcomes of another model or set, or whose run made other weights.

    `model` and `data` are fingerprint and digest; `answers` tell models apart that have the same weights but are different
    functions.
    """
    for path in sorted(out.glob("*.json")):
        try:
            held = json.loads(path.read_text("utf-8"))
            found = held["model"]["fingerprint"], held["data"]["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: not a readable outcome: {error}; remove it to go on") from None
        _refuse_other(out, found, (model, data))
    for path in sorted(out.glob("*.windows/plan.json")):
        plan = read_plan(path)
        _refuse_other(out, (plan["identity"].get("model"), plan["identity"].get("data")), (model, data))
        if not alike(plan["answers"], answers):
            raise _other(out, "model: one of the same weights that answers differently")
    made = {storage.read_meta(path).get("fingerprint") for path in out.parent.glob("checkpoints/*.safetensors")} - {None}
    if made and model not in made:
        raise _other(out, f"model: the run's own is {', '.join(sorted(map(str, made)))}, this is {model}")


def _refuse_other(out: Path, held: tuple[object, object], here: tuple[str, str]) -> None:
    for what, one, other in zip(("model", "set of images"), held, here, strict=True):
        if one != other:
            raise _other(out, f"{what}: {one} there, {other} here")


def _other(out: Path, what: str) -> UserError:
    return UserError(
        f"out: {str(out.parent)!r} is for another {what}. Pass another --out, or remove {str(out)!r} if you no longer need it"
    )
