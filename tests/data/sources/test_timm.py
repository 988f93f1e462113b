"""Sets through timm's readers: WebDataset archives on disk and a local folder in the place of the Hub."""

import io
import json
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_dataset

from robustvit.data import DataSpec, Images
from robustvit.errors import UserError

Sample = dict[str, bytes]


def jpeg(number: int) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (20 + number % 7, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def sample(number: int, label: int | None = None) -> Sample:
    label = number % 3 if label is None else label
    return {"json": json.dumps({"other": label + 10}).encode(), "jpg": jpeg(number), "cls": str(label).encode()}


def write_tar(path: Path, samples: Sequence[Sample], mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for number, members in enumerate(samples):
            for key, content in members.items():
                member = tarfile.TarInfo(f"images/{number:05}.{key}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def test_an_archive_belongs_to_a_split_by_a_whole_word_of_its_name(tmp_path: Path) -> None:
    for name, number in (("fastest-train-00", 0), ("fastest-test-00", 1), ("trains-val-00", 2)):
        write_tar(tmp_path / f"{name}.tar", [sample(number)])
    assert wds(tmp_path).load("train").y.tolist() == [0]
    assert wds(tmp_path).load("test").y.tolist() == [1]


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    write_tar(tmp_path / "set-train-00.tar", [sample(number) for number in range(7)])
    write_tar(tmp_path / "set-train-01.tar", [sample(number) for number in range(7, 12)])
    write_tar(tmp_path / "set-val-00.tar", [sample(number) for number in range(12, 18)])
    return tmp_path


def wds(folder: Path, **more: Any) -> DataSpec:
    return DataSpec("timm:wds/set", str(folder), size=16, resize=18, **more)


def squares(images: Images) -> torch.Tensor:
    return images.batch(slice(None))[0]


def by_timm(folder: Path, split: str) -> tuple[torch.Tensor, list[int]]:
    """What timm's own iteration gives, made squares by torchvision."""
    from torchvision import transforms

    resize = transforms.Resize(18, transforms.InterpolationMode.BICUBIC)
    steps = transforms.Compose([resize, transforms.CenterCrop(16), transforms.ToTensor()])
    pairs = list(create_dataset("wds/set", root=str(folder), split=split))
    return torch.stack([steps(image) for image, _ in pairs]), [label for _, label in pairs]


def test_images_and_labels_are_those_of_timms_own_iteration(shards: Path) -> None:
    for split, name in (("train", "set-train-{00..01}.tar|12"), ("test", "set-val-00.tar|6")):
        images = wds(shards).load(split)  # type: ignore[arg-type]
        x, y = by_timm(shards, name)
        assert torch.equal(squares(images), x)
        assert images.y.tolist() == y


def test_archives_without_a_description_are_read_in_silence(shards: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not (shards / "_info.json").exists()
    wds(shards).load("train")
    assert caplog.records == []


def test_images_are_reached_in_any_order(shards: Path) -> None:
    images = wds(shards).load("test")
    assert torch.equal(images.batch(torch.tensor([5, 0, 3]))[0], squares(images)[[5, 0, 3]])
    assert images.subset(torch.tensor([4])).y.tolist() == [1]


def test_an_info_file_says_what_the_splits_are(shards: Path) -> None:
    splits = {
        name: {"name": name, "filenames": files, "shard_lengths": lengths, "num_samples": sum(lengths)}
        for name, files, lengths in (
            ("train", ["set-val-00.tar"], [6]),
            ("validation", ["set-train-01.tar", "set-train-00.tar"], [5, 7]),
        )
    }
    (shards / "_info.json").write_text(json.dumps({"splits": splits}))
    assert len(wds(shards).load("train")) == 6
    test = wds(shards).load("test")
    assert torch.equal(squares(test), by_timm(shards, "validation")[0])
    splits["validation"]["num_samples"] = 13
    (shards / "_info.json").write_text(json.dumps({"splits": splits}))
    with pytest.raises(UserError, match="holds 12 images for test, and says 13"):
        wds(shards).load("test")


def test_archives_can_be_named(shards: Path) -> None:
    spec = wds(shards, splits={"train": "set-train-{00..00}.tar", "test": "set-train-01.tar"})
    assert (len(spec.load("train")), len(spec.load("test"))) == (7, 5)
    with pytest.raises(UserError, match=r"data\.path: 1 of 2 archives are not there, the first is .*set-train-02\.tar"):
        wds(shards, splits={"train": "set-train-{01..02}.tar"}).load("train")


def test_labels_may_be_a_field_of_the_json(shards: Path) -> None:
    images = wds(shards, args={"target_key": "other"}).load("test")
    assert images.y.tolist() == [10, 11, 12] * 2
    with pytest.raises(UserError, match=r"sample 'images/00000': its label is .* accepted: a field 'none' of \.json"):
        wds(shards, args={"target_key": "none"}).load("test")


def without(key: str) -> Sample:
    return {name: content for name, content in sample(0).items() if name != key}


BAD: dict[str, tuple[Sample, str]] = {
    "no image": (without("jpg"), r"sample 'images/00000' holds json, cls and no image|holds json, cls and no image; accepted"),
    "no label": (without("cls"), r"its label is b''; accepted: a whole number in \.cls"),
    "a label as a word": (sample(0) | {"cls": b"cat"}, r"its label is b'cat'; accepted"),
    "a negative label": (sample(0, -1), "labels from -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_sample_is_an_error_that_names_it(case: str, tmp_path: Path) -> None:
    bad, message = BAD[case]
    write_tar(tmp_path / "a-test.tar", [bad])
    with pytest.raises(UserError, match=message):
        wds(tmp_path).load("test")


def test_a_damaged_image_is_an_error_and_not_the_next_image(shards: Path) -> None:
    write_tar(shards / "set-val-00.tar", [sample(0), sample(1) | {"jpg": b"hello"}, sample(2)])
    images = wds(shards).load("test")
    with pytest.raises(UserError, match=r"set-val-00\.tar at byte \d+: cannot be decoded as an image"):
        squares(images)


def test_archives_that_cannot_be_reached_into_are_errors(tmp_path: Path) -> None:
    write_tar(tmp_path / "a-test.tar", [sample(0)], "w:gz")
    with pytest.raises(UserError, match=r"a-test\.tar: cannot be read as an uncompressed tar archive"):
        wds(tmp_path).load("test")
    with pytest.raises(UserError, match=r"holds neither _info\.json nor archives with train or training in their names"):
        wds(tmp_path).load("train")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSpec:
    """A folder that the Hub's client takes as it takes a name."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for split, count in (("train", 9), ("validation", 6)):
        for number in range(count):
            place = tmp_path / "set" / split / "abc"[number % 3] / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.open(io.BytesIO(jpeg(number))).save(place)
    return DataSpec(f"timm:hfds/{tmp_path / 'set'}", str(tmp_path / "cache"), size=16, resize=18)


def test_a_set_of_the_hub_has_its_own_splits_labels_and_classes(hub: DataSpec) -> None:
    train, test = hub.load("train"), hub.load("test")
    assert (len(train), len(test), test.classes) == (9, 6, ("a", "b", "c"))
    assert test.y.tolist() == [0, 0, 1, 1, 2, 2]
    same = DataSpec("folder", hub.source.partition("/")[2], size=16, resize=18)
    assert torch.equal(squares(train), squares(same.load("train")))
    x, y = test.batch(torch.tensor([4, 1]))
    assert torch.equal(x, squares(test)[[4, 1]])
    assert y.tolist() == [2, 0]


def test_a_split_or_column_that_the_hub_does_not_know_is_an_error(hub: DataSpec) -> None:
    with pytest.raises(UserError, match=r"split 'dev' could not be opened .*data\.splits\.test"):
        replace(hub, splits={"test": "dev"}).load("test")
    for argument in ("input_key", "target_key"):
        with pytest.raises(UserError, match=rf"data\.args\.{argument}: .* 'fine'; accepted: image, label|\('fine'\)"):
            replace(hub, args={argument: "fine"}).load("train")


def test_a_package_that_is_missing_is_named(hub: DataSpec, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import timm.data.readers.reader_wds as reader_wds

    monkeypatch.setattr(reader_wds, "wds", None)
    with pytest.raises(UserError, match=r"'timm:wds/set': needs the package webdataset, .*; pip install webdataset"):
        wds(shards).load("test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.delitem(sys.modules, "timm.data.readers.reader_hfds", raising=False)
    with pytest.raises(UserError, match=r"needs the package datasets, .*; pip install datasets"):
        hub.load("test")


def test_other_readers_are_refused() -> None:
    """Streams cannot be shuffled, shared out or resumed exactly."""
    for name in ("timm:hfids/set", "timm:tfds/cifar10", "timm:", "timm:wdss/set"):
        with pytest.raises(UserError, match=r"accepted: timm:hfds/NAME \(the Hub\) and timm:wds/NAME"):
            DataSpec.parse(name).load("train")
