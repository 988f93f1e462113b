"""Sources that are arrays in memory."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from robustvit.data.images import Images
from robustvit.data.sources.assemble import from_arrays
from robustvit.data.spec import DataSpec, Split
from robustvit.errors import UserError


def digits(spec: DataSpec, split: Split) -> Images:
    """The 1,797 handwritten digits, 8×8 grey, that scikit-learn carries; four fifths of each class are for training."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    if spec.path:
        raise UserError(f"data.path: {spec.path!r}; accepted with the data digits: none, they are part of scikit-learn")
    bunch = load_digits()
    # Stored as 0…16; rounding to uint8 changes a pixel by 1/510 at most.
    x = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    parts = train_test_split(x, bunch.target, test_size=360, random_state=0, stratify=bunch.target)
    x, y = (parts[0], parts[2]) if split == "train" else (parts[1], parts[3])
    return from_arrays("digits", x, y, tuple(str(d) for d in range(10)))


def npz(spec: DataSpec, split: Split) -> Images:
    """An `.npz` with `x_train, y_train, x_test, y_test`, and `classes` (names) if it wants its class count checked."""
    if not spec.path:
        raise UserError("data.path: missing; accepted: the path of an .npz file, as in npz:PATH")
    path = Path(spec.path).expanduser()
    if not path.is_file():
        raise UserError(f"data.path: no file {str(path)!r}")
    try:
        with zipfile.ZipFile(path):  # np.load takes other kinds of file too
            archive = np.load(path, allow_pickle=False)
        wanted = (f"x_{split}", f"y_{split}", "classes")
        arrays: dict[str, Any] = {name: archive[name] for name in archive.files if name in wanted}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"data.path: {str(path)!r} is no .npz, or not whole: {error}") from None
    if not {f"x_{split}", f"y_{split}"} <= set(arrays):
        held = ", ".join(archive.files) or "nothing"
        raise UserError(f"data.path: {str(path)!r} lacks x_{split} and y_{split}; it has: {held}")
    x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
    if x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)):
        raise UserError(
            f"data.path: x_{split} in {str(path)!r} is of shape {x.shape}; accepted: [N, height, width, channels] "
            "with 1 or 3 channels, or [N, height, width]"
        )
    if "classes" in arrays and arrays["classes"].ndim != 1:
        raise UserError(f"data.path: classes in {str(path)!r} is of shape {arrays['classes'].shape}; accepted: a name each")
    classes = tuple(str(name) for name in arrays["classes"]) if "classes" in arrays else None
    return from_arrays(path.stem, x, y, classes)
