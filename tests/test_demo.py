"""The demonstration: two models that differ in the objective alone, and the table and page that compare them."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import torch

from robustvit.demo import demo, table
from robustvit.evaluation import Outcome
from robustvit.recipes.digits import THREAT, digits_robust, digits_standard


def test_the_two_recipes_differ_only_in_what_robust_training_needs() -> None:
    def differing(one: object, other: object) -> set[str]:
        return {f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)}

    standard, robust = digits_standard(), digits_robust()
    assert differing(standard, robust) == {"name", "phases", "select"}
    assert differing(standard.phases[0], robust.phases[0]) == {"objective", "eps"}
    assert len(standard.phases) == len(robust.phases) == 1


def outcome(name: str, eps: float, right: int) -> Outcome:
    threat = {"norm": "linf", "eps": eps} if eps else None
    return Outcome(name, np.arange(8) < right, {"threat": threat}, {})


def test_the_table_shows_clean_accuracy_and_the_attacks_at_the_demos_eps_alone() -> None:
    def of(*right: int) -> list[Outcome]:
        names = [("clean", 0.0), ("fgsm", THREAT.eps), ("pgd", THREAT.eps / 2), ("pgd-50", THREAT.eps)]
        return [outcome(name, eps, count) for (name, eps), count in zip(names, right, strict=True)]

    head, *rows = table({"plain": of(8, 4, 3, 1), "tough": of(7, 6, 6, 5)}).splitlines()
    assert head.split() == ["accuracy", "(n", "=", "8)", "clean", "fgsm", "pgd-50"]
    assert [row.split() for row in rows] == [["plain", "100.0%", "50.0%", "12.5%"], ["tough", "87.5%", "75.0%", "62.5%"]]
    assert len({len(line) for line in (head, *rows)}) == 1  # columns stand under one another


def test_the_standard_model_falls_and_the_robust_one_stands(tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        shown, page = demo(tmp_path)
    under_attack = {}
    for name in ("digits-standard", "digits-robust"):
        found = Outcome.load(tmp_path / name / "outcomes" / f"pgd-50_linf_{THREAT.eps:g}.json")
        assert (found.n, found.eps) == (360, THREAT.eps)
        under_attack[name] = found.accuracy
        assert f"{found.accuracy:.1%}" in shown
        assert name in page.read_text()
    assert under_attack["digits-standard"] < 0.15
    assert under_attack["digits-robust"] > 0.60
    assert demo(tmp_path) == (shown, page)  # given again, it changes nothing
