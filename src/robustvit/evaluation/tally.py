"""How far an evaluation is, in model calls: what an image may cost at most, credited in full when it is broken early."""

from robustvit.attacks import Attack
from robustvit.evaluation.judge import Verdicts
from robustvit.progress import Advance


class Tally:
    def __init__(self, advance: Advance, attack: Attack | None, classes: int) -> None:
        self.advance = advance
        self.costs = [stage.cost(classes) for stage in attack.stages] if attack else [1]
        self.names = [stage.name for stage in attack.stages] if attack else ["clean"]
        self.shown = 0  # calls that the bar has
        self.limit = 0  # calls that the stage in hand may bring it to
        self.base = 0  # calls of all windows before this one
        self.size = 0  # images of this window
        self.robust = self.judged = 0  # images of the windows before
        self.note = ""

    def enter(self, images: int) -> None:
        self.size = images
        self.limit = self.base + images * self.costs[0]
        self.note = self._note(0, images)

    def asked(self, calls: int) -> None:
        worked = max(0, min(calls, self.limit - self.shown))
        self.shown += worked
        self.advance(worked, self.note)

    def stage_done(self, verdicts: Verdicts) -> None:
        """Broken images will ask no more: what they might have cost is done."""
        standing, finished = int(verdicts.correct.sum()), len(verdicts.stages)
        self.note = self._note(finished, standing)
        self._spare(self.base + self.size * sum(self.costs) - standing * sum(self.costs[finished:]))
        self.limit = self.shown + standing * sum(self.costs[finished : finished + 1])

    def leave(self, verdicts: Verdicts) -> None:
        self.base += self.size * sum(self.costs)
        self._spare(self.base)
        self.robust += int(verdicts.correct.sum())
        self.judged += self.size

    def _note(self, finished: int, standing: int) -> str:
        seen = self.judged + self.size
        share = (self.robust + standing) / seen
        now = self.names[finished] if finished < len(self.names) else "done"
        return f"{share:.1%} of {seen} robust so far, {now}"

    def _spare(self, calls: int) -> None:
        """As far as so many calls, without having made them."""
        self.advance(0, self.note, max(0, calls - self.shown))
        self.shown = max(self.shown, calls)
