"""ImageNet-1k (Russakovsky et al., 2015) and parts of it with fewer classes, such as ImageNet-100."""

import re
from pathlib import Path

import torch

from robustvit.data import folders
from robustvit.data.images import Images
from robustvit.data.sources.assemble import root_of
from robustvit.data.sources.folder import from_folder
from robustvit.data.spec import DataSpec, Split
from robustvit.errors import UserError

PUBLIC = "It is at https://image-net.org/download.php; unpack it to PATH/train/WNID/IMAGE and PATH/val/WNID/IMAGE"
LISTS = "https://github.com/HobbitLong/CMC/blob/master/imagenet100.txt"
BY_SEED = re.compile(r"(\d+) by seed (\d+)")


def imagenet(spec: DataSpec, split: Split) -> Images:
    """ImageNet-1k: PATH/val/WNID/IMAGE or PATH/WNID/IMAGE; with `classes`, only those. Labels are by the order of WNIDs."""
    here = folders.split_folder(root_of(spec, PUBLIC), split, ("train",) if split == "train" else ("val",))
    everything = folders.imagenet_classes()
    folders.check_known(here, everything)
    if spec.classes is None:
        return from_folder("imagenet", spec, split, here, everything)
    classes = chosen_classes(spec.classes, everything)
    missing = sorted(set(classes) - set(folders.class_names(here)))
    if missing:
        raise UserError(f"data.path: {str(here)!r} lacks {len(missing)} of the {len(classes)} classes, such as {missing[0]}")
    return from_folder(f"imagenet-{len(classes)}", spec, split, here, classes)


def chosen_classes(wish: str, everything: tuple[str, ...]) -> tuple[str, ...]:
    """Classes by a text file of WNIDs, or a number of them by seed; in the order of ImageNet's own labels, as a folder has."""
    if by_seed := BY_SEED.fullmatch(wish.strip()):
        count, seed = map(int, by_seed.groups())
        if not 2 <= count <= len(everything):
            raise UserError(f"data.classes: {wish!r}; accepted: 2 to {len(everything)} by a seed")
        order = torch.randperm(len(everything), generator=torch.Generator().manual_seed(seed))
        return tuple(everything[place] for place in order[:count].sort().values.tolist())
    try:
        words = Path(wish).expanduser().read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        accepted = f"a text file of WNIDs, as {LISTS}, or a number of classes by seed, as in '100 by seed 0'"
        raise UserError(f"data.classes: {wish!r} cannot be read ({error}); accepted: {accepted}") from None
    strange = sorted(set(words) - set(everything))
    if strange:
        raise UserError(f"data.classes: {wish!r} holds {strange[0]!r}; accepted: WNIDs of ImageNet-1k, as {everything[0]}")
    if len(set(words)) < max(2, len(words)):
        raise UserError(f"data.classes: {wish!r} holds {len(words)} WNIDs, {len(set(words))} different; accepted: 2 or more")
    return tuple(name for name in everything if name in set(words))
