"""Batch sizes that what is prepared for one size, compiled or captured, is used with."""


def filled(count: int) -> int:
    """The next of 1, 2, …, 8, 10, 12, 14, 16, 20, 24, …: four from a power of two to the next."""
    step = max(1, 1 << max(0, (count - 1).bit_length() - 3))
    return -(-count // step) * step
