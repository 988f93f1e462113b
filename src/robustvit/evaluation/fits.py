"""Do model and data speak of the same images and classes? Asked before anything is judged or trained."""

from torch import Tensor

from robustvit.attacks import Queries
from robustvit.data import Images
from robustvit.errors import UserError
from robustvit.models import Classifier


def check_answers(ask: Queries, x: Tensor, images: Images) -> None:
    """Does the model answer for all classes? A module from Python does not say how many it has."""
    logits = ask(x)
    if images.classes and logits.shape[1] != len(images.classes):
        raise UserError(f"model: {logits.shape[1]} classes, but data {images.name!r} has {len(images.classes)}")
    if int(images.y.max()) >= logits.shape[1]:
        raise UserError(f"model: {logits.shape[1]} classes, but data {images.name!r} has labels up to {int(images.y.max())}")


def check_fits(model: Classifier, images: Images) -> None:
    """Do model and data speak of the same images and classes?"""
    if model.input_size and tuple(model.input_size) != images.shape:
        raise UserError(
            f"data {images.name!r}: images of shape {images.shape} (channels, height, width); "
            f"accepted by the model: {tuple(model.input_size)}"
        )
    if model.num_classes is None:
        return
    if images.classes and len(images.classes) != model.num_classes:
        raise UserError(f"model: {model.num_classes} classes, but data {images.name!r} has {len(images.classes)}")
    for number, names in enumerate(zip(images.classes or (), model.classes or (), strict=False)):
        if len(set(names)) > 1:
            there, here = names
            raise UserError(
                f"data {images.name!r}: class {number} is {there!r}, when the model was trained it was {here!r}; accepted: "
                "the same classes in the same order (if only their names differ, an .npz without `classes` has none)"
            )
    if int(images.y.max()) >= model.num_classes:
        raise UserError(
            f"data {images.name!r}: labels up to {int(images.y.max())}; accepted by the model: 0 to {model.num_classes - 1}"
        )
