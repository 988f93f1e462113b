"""Sets of the Hugging Face Hub and WebDataset archives, as timm's readers find them."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from robustvit.data.files import Originals
from robustvit.data.images import Images
from robustvit.data.sources.assemble import from_originals, root_of
from robustvit.data.spec import DataSpec, Split
from robustvit.data.tars import index_tars
from robustvit.errors import UserError

NAMES = {"train": ("train", "training"), "test": ("test", "validation", "val", "valid")}
INFO = ("_info.json", "info.json")  # what timm takes a WebDataset's splits from
PACKAGES = {"hfds": "datasets", "wds": "webdataset"}


def timm(spec: DataSpec, split: Split) -> Images:
    """timm:hfds/NAME from the Hub, PATH its cache; or timm:wds/NAME, WebDataset archives in PATH: through timm's readers.

    `splits` says what the set calls its splits (by default train, and test or validation) or which archives they are, as in
    `train-{0000..0127}.tar`; `args` are more arguments of timm's `create_dataset`, such as `input_key` and `target_key`.
    """
    kind = spec.source.partition(":")[2].partition("/")[0]
    if kind == "hfds":
        return _hub(spec, split)
    if kind == "wds":
        return _archives(spec, split)
    raise UserError(f"data.source: {spec.source!r}; accepted: timm:hfds/NAME (the Hub) and timm:wds/NAME (WebDataset)")


@dataclass(frozen=True, slots=True)
class HubImages(Originals):
    """The rows of a reader: not through timm's data set, which gives the next image in the place of a damaged one."""

    name: str
    reader: Any

    def __len__(self) -> int:
        return len(self.reader)

    def open(self, place: int) -> Image.Image:
        with self.reader[place][0] as file, Image.open(file) as image:
            image.load()
            return image

    def where(self, place: int) -> str:
        return f"{self.name}[{place}]"


def _hub(spec: DataSpec, split: Split) -> Images:
    reader = _reader(spec, split)
    # A column that the set lacks is one without content to the reader.
    for argument, column in (("input_key", reader.image_key), ("target_key", reader.label_key)):
        if len(reader) and reader.dataset[0].get(column) is None:
            held = ", ".join(name for name, content in reader.dataset[0].items() if content is not None)
            raise UserError(f"data.args.{argument}: {spec.source!r} has no column {column!r}; accepted: {held}")
    y = np.asarray(list(reader.dataset[reader.label_key]))
    if y.dtype.kind not in "ui" or y.ndim != 1:
        raise UserError(f"data {spec.source!r}: labels of type {y.dtype}; accepted: a class number an image (args.target_key)")
    if len(y) and (y < 0).all():
        raise UserError(f"data {spec.source!r}: its {split} images have no labels; name another split in data.splits.{split}")
    classes = tuple(reader.class_to_idx) or None
    labels = torch.from_numpy(y.astype(np.int64))
    return from_originals(spec.source, spec, split, HubImages(spec.source, reader), labels, classes)


def _archives(spec: DataSpec, split: Split) -> Images:
    root = root_of(spec, "Archives are, for instance, at https://huggingface.co/datasets/timm/imagenet-1k-wds", ".tar archives")
    reader = _reader(spec, split)
    shards = [root / name for name in reader.split_info.filenames]
    missing = [str(shard) for shard in shards if not shard.is_file()]
    if missing:
        raise UserError(f"data.path: {len(missing)} of {len(shards)} archives are not there, the first is {missing[0]!r}")
    label_key = spec.args.get("target_key") or reader.split_info.alt_label or None
    tars, labels = index_tars([str(shard) for shard in shards], reader.input_key.split(";"), label_key)
    if len(tars) != (reader.num_samples or len(tars)):
        raise UserError(f"data.path: {str(root)!r} holds {len(tars)} images for {split}, and says {reader.num_samples}")
    return from_originals(spec.source, spec, split, tars, torch.tensor(labels, dtype=torch.int64), None)


def _reader(spec: DataSpec, split: Split) -> Any:
    """timm's reader of the first split that the set has."""
    from timm.data import create_dataset

    name = spec.source.partition(":")[2]
    kind, accepted = name.partition("/")[0], _splits(spec, split, name)
    root = str(Path(spec.path).expanduser()) if spec.path else None
    for number, wish in enumerate(accepted, 1):
        try:
            with _quiet():
                made = create_dataset(name, root=root, split=wish, **spec.args)
        except ImportError as error:
            raise _lacking(spec, kind, error) from None
        except (ValueError, RuntimeError, OSError, TypeError, KeyError, AttributeError) as error:
            # What the readers raise for a set that lacks the split differs from kind to kind.
            if number < len(accepted) and "split" in str(error):
                continue
            if "install" in str(error):
                raise _lacking(spec, kind, error) from None
            tried = " or ".join(map(repr, accepted))
            raise UserError(
                f"data {spec.source!r}: split {tried} could not be opened ({error}); accepted: a name of "
                f"https://huggingface.co/datasets, with its split in data.splits.{split} if that is another one"
            ) from None
        return made.reader
    raise AssertionError("the last name is either opened or an error")


@contextmanager
def _quiet() -> Iterator[None]:
    """timm warns of archives without a description, which are accepted here."""
    logger = logging.getLogger("timm.data.readers.reader_wds")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled


def _lacking(spec: DataSpec, kind: str, error: Exception) -> UserError:
    return UserError(
        f"data {spec.source!r}: needs the package {PACKAGES[kind]}, which is not here or not whole ({error}); "
        f"pip install {PACKAGES[kind]}"
    )


def _splits(spec: DataSpec, split: Split, name: str) -> Sequence[str]:
    if split in spec.splits:
        return (spec.splits[split],)
    root = Path(spec.path or ".").expanduser()
    if not name.startswith("wds/") or any((root / info).is_file() for info in INFO):
        return NAMES[split]
    for wish in NAMES[split]:
        shards = sorted(path.name for path in root.glob("*.tar") if wish in re.findall("[a-z]+", path.name))
        if shards:
            return ("::".join(shards),)
    raise UserError(
        f"data.path: {str(root)!r} holds neither {INFO[0]} nor archives with {' or '.join(NAMES[split])} in their names; "
        f"name them in data.splits.{split}, as in train-{{0000..0127}}.tar"
    )
