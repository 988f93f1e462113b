"""Where the time goes: shares of a device's time by kind of work, read off torch's profiler."""

from collections import Counter
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

# The first kind whose words are part of a kernel's name, or on a CPU of an operation's.
KINDS = {
    "attention": ("flash", "fmha", "attention", "sdpa"),
    "convolution": ("conv", "implicit_gemm", "dgrad", "wgrad"),
    "matrix product": ("gemm", "nvjet", "cutlass", "xmma", "matmul", "aten::mm", "addmm", "bmm", "linear"),
    "optimiser": ("multi_tensor", "foreach", "adam", "lion", "lerp_"),
    "sort": ("sort", "topk", "radix"),
    "copies": ("memcpy", "memset", "copy_", "cat"),
    "fused by the compiler": ("triton",),
}
OTHER = "elementwise and other"
IDLE = "nothing (launches, waiting)"


def where_time_goes(work: Callable[[], object], device: str) -> dict[str, float]:
    """Shares of the wall-clock time; they add up to 1 on a GPU that runs one kernel at a time."""
    on_gpu = device.startswith("cuda")
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as seen:
        work()
        if on_gpu:
            torch.cuda.synchronize()
    wall = _wall(seen, on_gpu)
    spent: Counter[str] = Counter()
    for event in seen.key_averages():
        spent[_kind(event.key)] += (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / wall
    spent[IDLE] = max(0.0, 1 - sum(spent.values()))
    return {kind: round(share, 4) for kind, share in spent.most_common() if share >= 5e-4}


def _wall(seen: profile, on_gpu: bool) -> float:
    """Microseconds from the first event's begin to the last one's end."""
    events = [e for e in seen.events() if not on_gpu or e.device_type == torch.autograd.DeviceType.CUDA]
    return max(e.time_range.end for e in events) - min(e.time_range.start for e in events)


def _kind(name: str) -> str:
    lowered = name.lower()
    return next((kind for kind, words in KINDS.items() if any(word in lowered for word in words)), OTHER)
