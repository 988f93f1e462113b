"""Images in tar archives, each reached by its offset: a stream could not be shuffled, sharded or resumed exactly."""

import io
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from robustvit.data.files import Originals
from robustvit.errors import UserError
from robustvit.progress import progress


@dataclass(frozen=True, slots=True)
class Tars(Originals):
    """Members of uncompressed tar archives: number of the archive, offset and length of each."""

    paths: tuple[str, ...]
    members: np.ndarray  # int64 [N, 3]

    def __len__(self) -> int:
        return len(self.members)

    def open(self, place: int) -> Image.Image:
        archive, offset, length = self.members[place].tolist()
        with open(self.paths[archive], "rb") as file:
            file.seek(offset)
            image = Image.open(io.BytesIO(file.read(length)))
        image.load()
        return image

    def mark(self, place: int) -> str:
        archive, offset, length = self.members[place].tolist()
        return f"{os.path.basename(self.paths[archive])} {offset} {length}"

    def where(self, place: int) -> str:
        archive, offset, _ = self.members[place].tolist()
        return f"{self.paths[archive]} at byte {offset}"


def index_tars(paths: Sequence[str], image_keys: Sequence[str], label_key: str | None) -> tuple[Tars, list[int]]:
    """Every sample of WebDataset's archives, in their order, with its label.

    The members of a sample share the name up to its first dot; what follows is their key. The label is the number in `.cls`
    or, with a `label_key`, that field of `.json`.
    """
    members: list[tuple[int, int, int]] = []
    labels: list[int] = []
    with progress(len(paths), "index shards", unit="shards") as advance:
        for archive, path in enumerate(paths):
            for name, (sample, label) in _samples(path, "json" if label_key else "cls").items():
                key = next((key for key in image_keys if key in sample), None)
                if key is None:
                    accepted = ", ".join(image_keys)
                    raise UserError(f"{path}: sample {name!r} holds {', '.join(sample)} and no image; accepted: {accepted}")
                labels.append(_label(f"{path}: sample {name!r}", label, label_key))
                members.append((archive, sample[key].offset_data, sample[key].size))
            advance(1, "")
    return Tars(tuple(paths), np.array(members, dtype=np.int64).reshape(-1, 3)), labels


def _samples(path: str, label_in: str) -> dict[str, tuple[dict[str, tarfile.TarInfo], bytes]]:
    """By name: the members by key, and the content of the one with the label."""
    samples: dict[str, tuple[dict[str, tarfile.TarInfo], bytes]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                folder, _, file = member.name.rpartition("/")
                name, _, key = file.partition(".")
                if not (member.isfile() and name and key):
                    continue
                known, label = samples.get(f"{folder}/{name}", ({}, b""))
                content = archive.extractfile(member) if key == label_in else None
                samples[f"{folder}/{name}"] = (known | {key.lower(): member}, content.read() if content else label)
    except (tarfile.TarError, OSError) as error:
        raise UserError(f"{path}: cannot be read as an uncompressed tar archive: {error}") from None
    return samples


def _label(where: str, content: bytes, label_key: str | None) -> int:
    try:
        return int(json.loads(content)[label_key] if label_key else content)
    except (ValueError, KeyError, TypeError):
        wanted = f"a field {label_key!r} of .json with a whole number" if label_key else "a whole number in .cls"
        raise UserError(f"{where}: its label is {content[:60]!r}; accepted: {wanted}") from None
