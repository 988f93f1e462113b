"""How much work a job is: what the device computes, and the calls that take their time however little each computes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from math import ceil

from robustvit.analysis.subjects import passes
from robustvit.models.flops import cost_of
from robustvit.papers.grid import Training
from robustvit.papers.looking import Inquiry
from robustvit.papers.measures import ATTACKS, Question
from robustvit.papers.scale import Scale
from robustvit.papers.sets import Size

AT_ONCE = 2048  # images in a call when models are judged


@dataclass(frozen=True, slots=True)
class Work:
    """Hours that the device computes for a job, and hours that the job's calls take however little each computes."""

    computing: float
    calling: float

    @property
    def alone(self) -> float:
        return max(self.computing, self.calling)


def together(works: Sequence[Work], jobs: int) -> float:
    """Hours of so many jobs at a time."""
    # Beside each other only the calls overlap: the device computes for one at a time. So it takes as long as all computing
    # in a row, or as the fullest of the queues in which each job takes what it takes alone; whichever is longer.
    queues = [0.0] * jobs
    for hours in sorted((work.alone for work in works), reverse=True):
        heapreplace(queues, queues[0] + hours)
    return max(sum(work.computing for work in works), max(queues))


def training_work(training: Training, scale: Scale) -> Work:
    recipe = training.recipe
    seen = training.images * sum(phase.epochs * phase.objective.cost for phase in recipe.phases)
    operations = 2 * seen * multiply_adds(Size(recipe.model, training.side))
    return Work(operations / scale.flops / 3600, scale.overhead * seen / recipe.batch_size / 3600)


def judging_work(questions: Sequence[Question]) -> Work:
    """Of one model."""
    asked = questions[0].asked
    each = [(asked.images(question.name) or asked.judged.count, _passes(question)) for question in questions]
    return _judging(asked.size, each, asked.scale)


def looking_work(inquiry: Inquiry, scale: Scale) -> Work:
    asked = [inquiry.analysis.cost(inquiry.images or inquiry.judged.count)]
    works = [_judging(looked.size, asked, scale) for looked in inquiry.looked]
    return Work(sum(work.computing for work in works), sum(work.calling for work in works))


def _judging(size: Size, asked: Sequence[tuple[int, float]], scale: Scale) -> Work:
    """Of so many images each with so many passes."""
    operations = 2 * multiply_adds(size) * sum(count * each for count, each in asked)
    calls = sum(ceil(count / AT_ONCE) * each for count, each in asked)
    return Work(operations / scale.exact_flops / 3600, scale.exact_overhead * calls / 3600)


def _passes(question: Question) -> float:
    if question.name in ATTACKS and question.threat:
        return passes(ATTACKS[question.name](question.threat, question.asked.scale))
    return 1


_KNOWN: dict[tuple[str, str, int], int] = {}


def multiply_adds(size: Size) -> int:
    key = (size.spec.name, str(size.spec.args), size.side)
    if key not in _KNOWN:
        _KNOWN[key] = cost_of(replace(size.spec, init=None), (size.spec.channels, size.side, size.side)).with_attention
    return _KNOWN[key]
