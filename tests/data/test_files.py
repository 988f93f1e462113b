"""Image files: what they become, when they are opened, and what happens if one is damaged."""

import gc
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import transforms

from robustvit.data import Images
from robustvit.data.files import Encoded, Files
from robustvit.data.stored import Stored
from robustvit.errors import UserError


def noise(height: int = 40, width: int = 30, mode: str = "RGB") -> Image.Image:
    """Noise with coarse structure, so that a wrong place, scale or channel shows."""
    coarse = np.random.default_rng(height * width).integers(0, 256, (5, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR).convert(mode)


def write(folder: Path, count: int, name: str = "{}.JPEG") -> tuple[str, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(str(folder / name.format(number)) for number in range(count))
    for number, path in enumerate(paths):
        noise(30 + number, 33).save(path)
    return paths


def stored(paths: tuple[str, ...], size: int = 16, shorter: int = 16) -> Stored:
    return Stored.whole(Encoded(Files(paths), size, shorter))


def lazy(paths: tuple[str, ...], size: int = 16, shorter: int = 20) -> Images:
    return Images("files", stored(paths, size, shorter), torch.arange(len(paths)) % 3, ("a", "b", "c"))


def decoded(path: Path | str, size: int, shorter: int) -> torch.Tensor:
    return stored((str(path),), size, shorter).read()[0]


@pytest.mark.parametrize(("height", "width"), [(40, 30), (30, 40), (33, 33), (20, 20), (15, 61), (500, 375), (7, 9)])
@pytest.mark.parametrize(("size", "shorter"), [(16, 20), (16, 16), (17, 20), (32, 36)])
def test_decoding_is_that_of_torchvision(height: int, width: int, size: int, shorter: int, tmp_path: Path) -> None:
    noise(height, width).save(tmp_path / "image.JPEG")
    steps = [
        transforms.Resize(shorter, transforms.InterpolationMode.BICUBIC),
        transforms.CenterCrop(size),
        transforms.PILToTensor(),
    ]
    with Image.open(tmp_path / "image.JPEG") as image:
        expected = transforms.Compose(steps)(image)
    assert torch.equal(decoded(tmp_path / "image.JPEG", size, shorter), expected)


def test_decoding_is_pils_own_resize_and_a_central_crop(tmp_path: Path) -> None:
    noise(60, 40).save(tmp_path / "image.png")
    resized = np.asarray(noise(60, 40).resize((20, 30), Image.Resampling.BICUBIC))
    expected = torch.from_numpy(resized[7:23, 2:18].copy()).permute(2, 0, 1)
    assert torch.equal(decoded(tmp_path / "image.png", 16, 20), expected)


def test_an_image_of_the_right_size_is_left_as_it_is(tmp_path: Path) -> None:
    noise(16, 16).save(tmp_path / "image.png")
    assert np.array_equal(decoded(tmp_path / "image.png", 16, 16).permute(1, 2, 0), noise(16, 16))


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("L", "JPEG"),
        ("CMYK", "JPEG"),
        ("RGBA", "png"),
        ("P", "png"),
        ("1", "png"),
        ("LA", "png"),
        ("RGB", "bmp"),
        ("RGB", "webp"),
    ],
)
def test_every_colour_mode_becomes_rgb(mode: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"image.{suffix}"
    noise(16, 16, mode).save(path)
    with Image.open(path) as image:
        expected = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    pixels = decoded(path, 16, 16)
    assert torch.equal(pixels, expected)
    assert (pixels.float().mean((1, 2)) - torch.from_numpy(np.array(noise(16, 16))).float().mean((0, 1))).abs().max() < 40
    if mode == "L":
        assert torch.equal(pixels[0], pixels[2])


def test_a_rotation_in_exif_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90°
    noise(16, 16).save(tmp_path / "turned.png", exif=exif)
    noise(16, 16).save(tmp_path / "plain.png")
    assert torch.equal(decoded(tmp_path / "turned.png", 16, 16), decoded(tmp_path / "plain.png", 16, 16))


def test_a_batch_keeps_its_order_and_its_labels(tmp_path: Path) -> None:
    paths = write(tmp_path, 12)
    images = lazy(paths)
    x, y = images.batch(torch.tensor([9, 0, 4]))
    one_by_one = torch.stack([decoded(paths[place], 16, 20) for place in (9, 0, 4)])
    assert torch.equal(x, one_by_one.float() / 255)
    assert y.tolist() == [0, 0, 1]
    assert images.shape == (3, 16, 16)
    mask = torch.zeros(12, dtype=torch.bool).index_fill(0, torch.tensor([3, 5]), True)
    assert torch.equal(images.batch(mask)[0], images.batch(torch.tensor([3, 5]))[0])


def test_a_place_beyond_the_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        lazy(write(tmp_path, 3)).batch(torch.tensor([3]))


def test_batches_land_on_the_device_that_was_asked_for(tmp_path: Path) -> None:
    paths = write(tmp_path, 3)
    assert stored(paths).to("meta")[:2].read().device.type == "meta"
    assert lazy(paths).to("cpu").x.device == "cpu"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that PIL opened."""
    names: list[str] = []
    real = Image.open

    def spy(path: str, *rest: object) -> Image.Image:
        names.append(Path(path).name)
        return real(path, *rest)

    monkeypatch.setattr(Image, "open", spy)
    return names


def test_only_the_files_of_the_asked_batch_are_opened(tmp_path: Path, opened: list[str]) -> None:
    images = lazy(write(tmp_path, 12))
    chosen, _ = images.first(6)
    part = chosen.to("cpu").subset(slice(2, None))
    assert (len(part), part.num_classes, part.y.tolist()) == (4, 3, [2, 0, 1, 2])
    assert not opened
    part.batch(slice(1, 3))
    assert sorted(opened) == ["3.JPEG", "4.JPEG"]


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    """A set of 100,000 and five batches of it hold the tensor of the last batch and no other."""
    paths = write(tmp_path, 2) * 50_000
    gc.collect()

    def held() -> int:
        return sum(x.nbytes for x in gc.get_objects() if type(x) is torch.Tensor and x.dtype != torch.int64)

    before, images = held(), lazy(paths)
    for begin in range(0, 20, 4):
        x, _ = images.batch(slice(begin, begin + 4))
    assert held() == before + x.nbytes


def test_a_set_is_kept_in_memory_if_it_fits(tmp_path: Path) -> None:
    images = lazy(write(tmp_path, 5))
    need = 5 * 3 * 16 * 16
    kept = images.kept(need)
    assert isinstance(kept.x, torch.Tensor)
    assert kept.x.dtype == torch.uint8
    assert torch.equal(kept.batch(slice(None))[0], images.batch(slice(None))[0])
    assert images.kept(need - 1) is images
    assert kept.kept(0) is kept


def damaged(how: str) -> bytes:
    buffer = io.BytesIO()
    noise(64, 64).save(buffer, "PNG" if "png" in how else "JPEG")
    whole = buffer.getvalue()
    broken = bytearray(whole)
    broken[40:48] = b"\xff" * 8
    return {"text": b"hello", "empty": b"", "broken png": bytes(broken)}.get(how, whole[: len(whole) // 2])


@pytest.mark.parametrize("how", ["truncated jpeg", "truncated png", "broken png", "text", "empty"])
def test_a_damaged_image_is_an_error_that_names_the_file(how: str, tmp_path: Path) -> None:
    paths = write(tmp_path, 6)
    Path(paths[3]).write_bytes(damaged(how))
    images = lazy(paths)
    images.batch(slice(0, 3))
    with pytest.raises(UserError, match=r"3\.JPEG: cannot be decoded as an image"):
        images.batch(slice(None))


def test_a_file_that_went_away_is_an_error_that_names_it(tmp_path: Path) -> None:
    paths = write(tmp_path, 2)
    Path(paths[1]).unlink()
    with pytest.raises(UserError, match=r"1\.JPEG: cannot be decoded as an image"):
        lazy(paths).batch(slice(None))


def test_the_labels_of_files_are_checked_as_those_of_pixels_are(tmp_path: Path) -> None:
    files = stored(write(tmp_path, 3))
    with pytest.raises(UserError, match="labels from 0 to 2; accepted: 0 to 1"):
        Images("files", files, torch.arange(3), ("a", "b"))
    with pytest.raises(UserError, match="3 images but labels of shape"):
        Images("files", files, torch.arange(2))
    with pytest.raises(UserError, match="the set is empty"):
        Images("files", stored(()), torch.arange(0))
