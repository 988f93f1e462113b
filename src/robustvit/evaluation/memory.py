"""How many images fit: as data (a window) and in the model at once (a micro-batch)."""

import psutil
import torch
from torch import Tensor

from robustvit.attacks import Queries
from robustvit.attacks.losses import margin

# Copies of an image that an attack's state, its example and their float64 projections take, rounded up.
COPIES = 24
# A micro-batch beyond these gains no speed; CPUs like what stays in their cache.
LARGEST = {"cuda": 2048, "cpu": 128}
LARGEST_WINDOW = {"cuda": 2048, "cpu": 256}


def window_size(image: Tensor) -> int:
    """Images whose attack state takes a tenth of the memory at most.

    A power of 2, so that a little more or less free changes nothing.
    """
    device = image.device.type
    fit = int(max(1, min(LARGEST_WINDOW[device], _free(device) // 10 // (COPIES * image.numel() * 4))))
    return 1 << (fit.bit_length() - 1)


def micro_batch(ask: Queries, x: Tensor, y: Tensor) -> int:
    """Images whose backward pass takes half of the free memory at most, by what autograd keeps of two of them."""
    kept = 0

    def note(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    x, y = x[:2], y[:2]
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        ask.gradient(x, margin, y)
    device = x.device.type
    return int(max(1, min(LARGEST[device], _free(device) // 2 // max(1, kept // len(x)))))


def _free(device: str) -> int:
    return torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available
