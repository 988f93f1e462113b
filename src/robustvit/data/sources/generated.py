"""Generated images by themselves; beside real ones they are `data.generated` (mixing.py)."""

from pathlib import Path

from robustvit.data.images import Images
from robustvit.data.mapped import PUBLIC, map_images
from robustvit.data.spec import DataSpec, Split
from robustvit.data.stored import Stored
from robustvit.errors import UserError


def generated(spec: DataSpec, split: Split) -> Images:
    """Generated images to train on, from an `.npz` with `image` (uint8, NHWC) and `label`, or a folder of such; mapped."""
    if split == "test":
        raise UserError("data 'generated': has no test images; accepted: real ones, as in --data cifar10:PATH")
    if not spec.path:
        raise UserError(f"data.path: missing; accepted: an .npz or a folder of them, as in generated:PATH. {PUBLIC}")
    store, y = map_images(spec.path)
    return Images(Path(spec.path).stem, Stored.whole(store), y).kept()
