"""What every model of the project's own costs: parameters and multiply–adds of one image. Computes no image, so runs anywhere.

python benchmarks/costs.py
"""

import json
from pathlib import Path

from robustvit.models import ModelSpec
from robustvit.models.architectures import OWN
from robustvit.models.flops import cost_of

RESULT = Path(__file__).parent / "results" / "costs.json"
IMAGENET = 1000, 224  # classes and pixels a side; the others see ten classes in 32 pixels


def shape(name: str) -> tuple[int, int]:
    if name == "vit_nano":
        return 10, 8
    return (10, 32) if name.endswith(("_32", "_mini")) or name.startswith("wrn") else IMAGENET


def rows() -> list[dict[str, object]]:
    found = []
    for name, line in OWN.items():
        classes, side = shape(name)
        cost = cost_of(ModelSpec(name, classes), (3, side, side))
        about = {"name": name, "about": line, "classes": classes, "pixels": side, "parameters": cost.parameters}
        found.append({**about, "linear_only": cost.linear_only, "with_attention": cost.with_attention})
    return found


def table(found: list[dict[str, object]]) -> str:
    """As docs/models.md has it."""
    lines = ["| model | pixels | parameters | linear layers, G | with attention, G |", "|---|--:|--:|--:|--:|"]
    for row in found:
        parameters, linear, all_ = (float(str(row[key])) for key in ("parameters", "linear_only", "with_attention"))
        lines.append(f"| `{row['name']}` | {row['pixels']} | {parameters / 1e6:.2f}M | {linear / 1e9:.2f} | {all_ / 1e9:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    made = rows()
    RESULT.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    print(table(made))
