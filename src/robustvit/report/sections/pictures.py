"""Sections whose evidence is pictures."""

from typing import Any

import numpy as np
import torch

from robustvit.analysis import Finding
from robustvit.analysis.semantic import as_image
from robustvit.report.drawing import png
from robustvit.report.sections.picture_grid import picture_grid
from robustvit.report.sections.section import Picture, Section, label
from robustvit.threat import Threat


def semantic(finding: Finding) -> Section:
    rows, judges, top = finding.data["models"], finding.data["judges"], finding.data["top"]
    table = [["perturbations of", *judges]]
    table.append(["(the images themselves)", *(f"{share['accuracy']:.1%}" for share in judges.values())])
    for row in rows:
        for sign, name in (("negative", "−δ"), ("positive", "+δ")):
            seen = [f"{row[sign][judge]['accuracy']:.1%}" if judge in row[sign] else "–" for judge in judges]
            table.append([f"{row['model']}, {name}", *seen])
    pictures: list[list[str | Picture]] = [["", "image", *(f"{row['model']}, −δ" for row in rows)]]
    changes = [_grey_changes(finding, -deltas) for deltas in finding.arrays["delta"]]
    for number, (image, true) in enumerate(zip(finding.arrays["image"], finding.data["label"], strict=True)):
        of_models = [Picture(png(change[number]), "perturbation") for change in changes]
        name = _class(finding.data, true)
        pictures.append([name, Picture(png(image), f"image of {name}"), *of_models])
    n = next(iter(judges.values()))["n"]
    return Section(
        "Are perturbations images of a class?",
        f"Other models look at the perturbation alone, stretched to [0, 1]: how often is the true class among the first {top} "
        f"that they name (n = {n})? The number to quote is that of −δ, since what an attack takes away is the class. Grey is "
        "for display alone.",
        table=table,
        pictures=pictures,
    )


def feature_images(finding: Finding) -> Section:
    data = finding.data
    threat = finding.provenance["parameters"]["threat"]
    pictures: list[list[str | Picture]] = [["", *data["classes"]]]
    pictures.append(["noise", *(Picture(png(image), "noise") for image in finding.arrays["start"])])
    for row, images in zip(data["models"], finding.arrays["image"], strict=True):
        shown = zip(data["classes"], row["confidence"], images, strict=True)
        pictures.append([label(row), *(Picture(png(image), name, f"{sure:.0%}") for name, sure, image in shown)])
    return Section(
        "What a class looks like to a model",
        f"From the same noise, each model's targeted attack to the class above, within {threat['norm']} ≤ {threat['eps']:.4g} "
        "and [0, 1], and how sure the model then is of that class.",
        pictures=pictures,
    )


def gallery(finding: Finding) -> Section:
    data, images = finding.data, finding.arrays["image"]
    threat = finding.provenance["parameters"]["threat"]
    columns = [text for row in data["models"] for text in (f"{label(row)}: change", "changed image")]
    pictures: list[list[str | Picture]] = [["", "image", *columns]]
    changes = [_grey_changes(finding, attacked - images) for attacked in finding.arrays["attacked"]]
    for number, (image, true) in enumerate(zip(images, data["label"], strict=True)):
        cells: list[str | Picture] = [_class(data, true), Picture(png(image), f"image of {_class(data, true)}")]
        for row, change, attacked in zip(data["models"], changes, finding.arrays["attacked"], strict=True):
            said = f"{_class(data, row['before'][number])} → {_class(data, row['after'][number])}"
            cells += [Picture(png(change[number]), "change"), Picture(png(attacked[number]), "changed image", said)]
        pictures.append(cells)
    return Section(
        "Perturbations side by side",
        f"The first images of the set, as each model's attack within {threat['norm']} ≤ {threat['eps']:.4g} leaves them. The "
        "change is stretched to [0, 1] and shown in grey.",
        pictures=pictures,
    )


def perturbations(finding: Finding) -> str:
    """Figure 8 of the light recipe: images, and what each model's attack changes of them."""
    data, images = finding.data, finding.arrays["image"]
    rows: list[list[str | Picture]] = [["", "image", *(label(row) for row in data["models"])]]
    changes = [_grey_changes(finding, attacked - images) for attacked in finding.arrays["attacked"]]
    for number, (image, true) in enumerate(zip(images, data["label"], strict=True)):
        name = _class(data, true)
        of_models = [Picture(png(change[number]), "change") for change in changes]
        rows.append([name, Picture(png(image), f"image of {name}"), *of_models])
    return picture_grid(rows)


def _grey_changes(finding: Finding, deltas: np.ndarray) -> np.ndarray:
    threat = Threat(**finding.provenance["parameters"]["threat"])
    images = as_image(torch.from_numpy(deltas), threat).numpy()
    weights = (0.299, 0.587, 0.114) if images.shape[1] == 3 else (1.0,)  # what the eye makes of red, green and blue
    grey: np.ndarray = np.einsum("nchw,c->nhw", images, np.array(weights))[:, None]
    return grey


def _class(data: dict[str, Any], index: int) -> str:
    return data["classes"][index] if data["classes"] else str(index)
