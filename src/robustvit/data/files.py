"""Images that stay in their files until a batch of them is asked for."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, resize

from robustvit.errors import UserError
from robustvit.progress import progress

THREADS = min(16, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Files:
    """N image files that stand for a uint8 tensor [N, 3, size, size]; indexing selects files, `read` decodes them.

    Each is made RGB, resized (bicubic) until its shorter side is `shorter` pixels, and cropped to the central square. A
    rotation noted in EXIF is ignored, as torchvision and timm do.
    """

    paths: tuple[str, ...]
    size: int
    shorter: int
    device: torch.device | str = "cpu"

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (len(self.paths), 3, self.size, self.size)

    @property
    def nbytes(self) -> int:
        return len(self.paths) * 3 * self.size**2

    def __getitem__(self, index: Tensor | slice) -> "Files":
        places = torch.arange(len(self))[index.cpu() if isinstance(index, Tensor) else index]
        return replace(self, paths=tuple(self.paths[place] for place in places.tolist()))

    def to(self, device: torch.device | str) -> "Files":
        return replace(self, device=device)

    def read(self, note: str | None = None) -> Tensor:
        """All of them, decoded side by side; with a `note`, under a progress bar of that name."""
        x = torch.empty(self.shape, dtype=torch.uint8)
        with (
            progress(len(self), note or "read", shown=note is not None) as advance,
            ThreadPoolExecutor(THREADS) as pool,
        ):
            for image, pixels in zip(x, pool.map(self._decode, self.paths), strict=True):
                image.copy_(torch.from_numpy(pixels).permute(2, 0, 1))
                advance(1, "")
        return x.to(self.device)

    def _decode(self, path: str) -> np.ndarray:
        try:
            with Image.open(path) as image:
                square = center_crop(resize(image.convert("RGB"), self.shorter, InterpolationMode.BICUBIC), self.size)
        # What PIL's decoders raise for a damaged file differs between formats.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"{path}: cannot be decoded as an image: {error}") from None
        return np.array(square)
