"""The processes of an evaluation: one, or as many as `accelerate launch` started."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch

from robustvit.device import find_device


@dataclass(frozen=True, slots=True)
class Team:
    rank: int
    size: int
    device: torch.device

    @staticmethod
    def assemble(device: str | None) -> "Team":
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return Team(0, 1, find_device(device))
        from accelerate import PartialState

        # One process may wait hours for another's last window.
        state = PartialState(cpu=device == "cpu", timeout=timedelta(days=30))
        return Team(state.process_index, state.num_processes, state.device)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def gather(self, own: list[Any]) -> list[Any]:
        """Everybody's items, on every process; also the place where processes wait for each other."""
        if self.size == 1:
            return own
        from accelerate.utils import gather_object

        everybody: list[Any] = gather_object(own)
        return everybody
