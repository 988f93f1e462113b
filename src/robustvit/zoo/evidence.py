"""What proves an entry's numbers: the hash of its adversarial examples, and whether an evaluation made the same ones."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from robustvit import storage
from robustvit.evaluation.outcome import Outcome, file_name
from robustvit.zoo import PREFIX, Entry, entries


def evidence_hash(outcomes: Path, name: str) -> str | None:
    """Of the adversarial examples of all broken images, in their order; None if none are kept."""
    windows = sorted((outcomes / f"{file_name(name)}.windows").glob("window-*.safetensors"))
    tensors = [storage.read(window)[0] for window in windows]
    if name.startswith("clean") or not tensors or any("examples" not in each for each in tensors):
        return None
    hashed = hashlib.sha256()
    for each in tensors:
        hashed.update(each["examples"].contiguous().numpy().tobytes())
    return hashed.hexdigest()


def compared(model: str, made: Iterable[Outcome], outcomes: Path) -> Iterator[str]:
    """For a model of the zoo: does each outcome that its card has, on as many images, say the same?"""
    entry = next((entry for entry in entries() if f"{PREFIX}{entry.name}" == model), None)
    for outcome in made:
        name = outcome.name.partition(" #")[0]  # a second one in its folder may be the card's nevertheless
        if entry and (said := entry.card["outcomes"].get(name)) and _same_question(entry, name, outcome):
            yield f"zoo card, {name}: {_verdict(said, outcome, evidence_hash(outcomes, outcome.name))}"


def _same_question(entry: Entry, name: str, outcome: Outcome) -> bool:
    """The same attack with the same seed on the same images?"""
    published = Outcome.load(entry.folder / "outcomes" / f"{file_name(name)}.json")
    same_images = np.array_equal(published.arrays["index"], outcome.arrays["index"])
    return same_images and published.provenance["attack"] == outcome.provenance["attack"]


def _verdict(said: dict[str, Any], outcome: Outcome, evidence: str | None) -> str:
    if outcome.summary["correct"] != said["correct"]:
        return f"says {said['correct']} of {said['n']}, here {outcome.summary['correct']}"
    if said["evidence_sha256"] is None or evidence is None:
        return "the same number"
    if evidence == said["evidence_sha256"]:
        return f"the same number and the same examples, sha256 {evidence[:12]}…"
    return "the same number by other examples, as another machine's rounding makes them"
