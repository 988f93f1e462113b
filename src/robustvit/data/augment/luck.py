"""Luck: random numbers that belong to the images of a batch, so that an image's augmentation does not depend on the others."""

import math

import torch
from torch import Tensor

from robustvit import noise

TRIES = 8  # of a rejection sampler that accepts 95% or more: all fail once in 10^10 numbers


class Luck:
    """A stream of numbers for each image, [B, …] at a call; every call goes on where the last one stopped.

    Nothing is read back from the device, and no number depends on the batch, on its order, or on how many processes share it.
    """

    def __init__(self, keys: Tensor) -> None:
        """`keys` holds one int32 an image."""
        self.keys = keys
        self.calls = 0

    @staticmethod
    def of(index: Tensor, seed: int, epoch: int) -> "Luck":
        """Of images given by their numbers in the training set, in one epoch of a run."""
        return Luck(noise.numbered(index, seed, epoch))

    def uniform(self, *shape: int) -> Tensor:
        """In the open interval (0, 1)."""
        numbers = noise.draw(self.keys, self.calls, math.prod(shape))
        self.calls += 1
        return numbers.view(len(self.keys), *shape)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * self.uniform(*shape)

    def chance(self, prob: float) -> Tensor:
        """True with that probability; at 0 never and at 1 always."""
        return self.uniform() < prob

    def whole(self, most: int | Tensor) -> Tensor:
        """A whole number from 0 to `most`, each as likely as the others: float32, to reckon on with."""
        # A number below 1 times a whole one, rounded to float32, stays below the whole one.
        return (self.uniform() * (most + 1)).floor()

    def sign(self) -> Tensor:
        return 1 - 2 * self.whole(1)

    def normal(self, *shape: int) -> Tensor:
        return math.sqrt(2) * torch.erfinv(2 * self.uniform(*shape) - 1)

    def beta(self, alpha: float) -> Tensor:
        """Beta(α, α), as the share of one of two gamma variates in their sum."""
        return torch.sigmoid(self._log_gamma(alpha) - self._log_gamma(alpha))

    def _log_gamma(self, shape: float) -> Tensor:
        """The logarithm of Gamma(shape, 1): for small shapes the variate itself underflows.

        Marsaglia & Tsang (2000) for shape + 1, where nearly every try is accepted, then their step down by U^(1/shape).
        """
        d = shape + 2 / 3
        z, u = self.normal(TRIES), self.uniform(TRIES)
        v = (1 + z / math.sqrt(9 * d)).clamp(min=0) ** 3
        accepted = u.log() < z.square() / 2 + d * (1 - v + v.log())  # −∞, never more, where v is 0
        first = accepted.int().argmax(1, keepdim=True)
        return math.log(d) + v.gather(1, first).log().squeeze(1) + self.uniform().log() / shape
