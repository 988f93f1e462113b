"""Files of tensors and plain data (safetensors) that are either whole or not there. Nothing is pickled."""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from robustvit.errors import UserError

META = "robustvit"  # the only key of a file's header: safetensors writes several in no fixed order


def write(path: Path, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    replace_file(path, lambda: serialise(plain, {META: json.dumps(meta)}))


def replace_file(path: Path, content: Callable[[], bytes]) -> None:
    """Atomically: a new file is complete and on the disk before it takes the old one's place."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(content())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        kept = f"the previous {path.name} is untouched" if path.is_file() else "nothing was overwritten"
        raise UserError(
            f"{path}: could not be saved ({error.strerror}); {kept}. Once that is mended, the same command goes on"
        ) from error


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        if _is_pickle(path):
            raise UserError(
                f"{path}: is a pickle, which can run code when opened. Accepted: .safetensors. If you trust it, load it "
                "yourself (torch.load with weights_only=True) and pass the module to robustvit.load_model"
            ) from None
        raise UserError(f"{path}: truncated or not a safetensors file ({error})") from None
    if META not in header:
        raise UserError(
            f"{path}: was not written by robustvit, so it does not say which model its weights belong to. In Python, "
            "timm.create_model(NAME, checkpoint_path=FILE) loads timm's, and robustvit.evaluate takes the module"
        )
    try:
        meta = json.loads(header[META])
        if not isinstance(meta, dict):
            raise ValueError(f"a {type(meta).__name__}, not fields")
    except ValueError as error:
        raise UserError(f"{path}: damaged: its description cannot be read ({error!r})") from None
    return tensors, meta


def read_meta(path: Path) -> dict[str, Any]:
    """What a file says of itself, without its tensors; empty where it says nothing that can be read."""
    try:
        with safe_open(path, "pt") as file:
            meta = json.loads((file.metadata() or {}).get(META, "{}"))
    except (SafetensorError, OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}


def _is_pickle(path: Path) -> bool:
    """By its first bytes: torch's zip, or a pickle of protocol 2 and above."""
    with open(path, "rb") as file:
        start = file.read(2)
    return start == b"PK" or start[:1] == b"\x80"
