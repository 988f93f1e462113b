"""When an ordering is believed, and when nobody knows."""

import numpy as np
import pytest
from scipy.stats import binomtest

from robustvit.papers.verdict import FAILED, HELD, OPEN, Numbers, Verdict, judge, mcnemar, overall


def images(right: int, n: int = 100) -> np.ndarray:
    return np.arange(n) < right


@pytest.mark.parametrize(
    ("larger", "smaller", "text"),
    [
        ((5.0, 6.0, 7.0), (1.0, 2.0, 4.9), HELD),
        ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0), FAILED),
        ((1.0, 2.0, 5.0), (3.0, 4.0, 4.5), OPEN),
        ((5.0, 6.0), (1.0, 2.0), OPEN),  # two seeds are not enough
        ((5.0,), (1.0,), OPEN),
        ((5.0, 6.0, 7.0), (5.0, 5.0, 5.0), OPEN),  # a tie does not separate
    ],
)
def test_trainings_are_ordered_only_where_three_seeds_separate(larger: tuple, smaller: tuple, text: str) -> None:
    assert judge(Numbers(larger), Numbers(smaller), training=True).text == text


def test_many_images_do_not_order_trainings_of_one_seed() -> None:
    one, other = Numbers((90.0,), (images(90),)), Numbers((10.0,), (images(10),))
    assert judge(one, other, training=True).text == OPEN
    assert judge(one, other, training=False).text == HELD


def test_the_same_images_under_two_attacks_are_compared_in_pairs() -> None:
    weak, strong = Numbers((60.0,), (images(60),)), Numbers((53.0,), (images(53),))
    assert judge(weak, strong, training=False).text == HELD  # 7 : 0
    assert judge(strong, weak, training=False).text == FAILED
    nearly = Numbers((58.0,), (images(58),))
    assert judge(weak, nearly, training=False).text == OPEN  # 2 : 0
    seeds = Numbers((60.0, 60.0), (images(60), images(60))), Numbers((53.0, 58.0), (images(53), images(58)))
    assert judge(*seeds, training=False).text == OPEN  # not in every seed


def test_a_side_that_is_missing_leaves_it_open() -> None:
    assert judge(None, Numbers((1.0,)), training=False).text == OPEN
    assert judge(Numbers(()), Numbers((1.0,)), training=True).text == OPEN


@pytest.mark.parametrize(("one", "other"), [(7, 0), (5, 3), (0, 0), (12, 4), (3, 9)])
def test_mcnemar_is_the_two_sided_binomial_test(one: int, other: int) -> None:
    expected = binomtest(one, one + other).pvalue if one + other else 1.0
    assert mcnemar(one, other) == pytest.approx(expected)


def test_one_ordering_that_failed_decides_and_one_open_leaves_open() -> None:
    def of(*texts: str) -> str:
        return overall([Verdict(text, "") for text in texts]).text

    assert of(HELD, HELD) == HELD
    assert of(HELD, OPEN) == OPEN
    assert of(HELD, OPEN, FAILED) == FAILED
    assert of() == "no ordering claimed"
