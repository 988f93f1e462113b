"""Surgery: a model's block outputs, and the model with parts of blocks cut out; context managers only."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from robustvit.errors import UserError, unknown
from robustvit.models.classifier import Classifier

PARTS = ("block", "attention", "mlp")

# Where timm keeps a model's blocks; class attention is a stack of its own in CaiT and XCiT.
_STACKS = (
    *("blocks", "blocks_token_only", "cls_attn_blocks", "stages", "layers"),
    *("layer1", "layer2", "layer3", "layer4", "s1", "s2", "s3", "s4"),
)
MOST = 0.2  # of a model's weights, its classifier aside: whoever holds fewer in the blocks that were found has others


def name_of(model: nn.Module) -> str:
    """What timm calls it, else its class."""
    backbone = model.backbone if isinstance(model, Classifier) else model
    return (getattr(backbone, "pretrained_cfg", None) or {}).get("architecture") or type(backbone).__name__


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """Inside, all that went through torch.compile runs uncompiled, in every thread: compiled code ignores hooks added later.

    Checkpointed blocks are refused: they run once more in the backward pass, when the hooks may be gone.
    """
    if any(getattr(module, "grad_checkpointing", False) for module in model.modules()):
        raise UserError(f"model {name_of(model)}: grad_checkpointing is on; accepted: model.set_grad_checkpointing(False)")
    with torch.compiler.set_stance("force_eager"):
        yield


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks by name, in order: those of all stages, without what stands between the stages (downsampling)."""
    prefix, root = ("backbone.", model.backbone) if isinstance(model, Classifier) else ("", model)
    stacks = [(prefix + name, child) for name, child in root.named_children() if name in _STACKS]
    found = {name: block for stack in stacks for name, block in _leaves(*stack)}
    if not found:
        raise UserError(f"model {name_of(model)}: no blocks found; accepted: models that keep them in {', '.join(_STACKS)}")
    if sum(map(_size, found.values())) < MOST * (_size(root) - _size(_head(root))):
        where = ", ".join(found)
        raise UserError(f"model {name_of(model)}: most of it is outside of {where}; accepted: models made of blocks")
    return found


def _size(module: nn.Module | None) -> int:
    return sum(p.numel() for p in module.parameters()) if module else 0


def _head(root: Any) -> nn.Module | None:
    head = root.get_classifier() if hasattr(root, "get_classifier") else None
    return head if isinstance(head, nn.Module) else None


@contextmanager
def block_outputs(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Block name -> its output in the latest forward pass, with its graph.

    Class attention in CaiT puts out the class token alone, the other blocks all their tokens or maps. Of several things that a
    block puts out (MViT: tokens and their grid) it is the tensor.
    """
    outputs: dict[str, Tensor] = {}

    def keep(name: str, block: nn.Module, args: Any, output: Any) -> None:
        tensors = [each for each in output if isinstance(each, Tensor)] if isinstance(output, tuple | list) else [output]
        if len(tensors) != 1 or not isinstance(tensors[0], Tensor):
            raise UserError(f"model {name_of(model)}: {name} puts out {len(tensors)} tensors; accepted: one")
        outputs[name] = tensors[0]

    with ExitStack() as exits:
        exits.enter_context(eager(model))
        for name, block in blocks(model).items():
            exits.callback(block.register_forward_hook(partial(keep, name)).remove)
        yield outputs


@contextmanager
def lesion(model: nn.Module, block: int | Iterable[int], part: str = "block") -> Iterator[None]:
    """Cuts a part out of blocks, by their numbers in `blocks`: of its residual branch only the skip remains.

    Whatever a block does on its skip it still does: ResNet's activation after the sum, a shortcut convolution where the size
    changes, MetaFormer's scale. "block" cuts all branches, XCiT's local patch interaction among them.
    """
    if part not in PARTS:
        raise unknown("part of a block", part, PARTS)
    found = list(blocks(model).items())
    with ExitStack() as exits:
        exits.enter_context(eager(model))
        for number in [block] if isinstance(block, int) else block:
            if not 0 <= number < len(found):
                raise UserError(f"block: {number}; accepted: 0 to {len(found) - 1} for model {name_of(model)}")
            name, module = found[number]
            ends = _ends(module, part)
            if not ends:
                raise UserError(f"model {name_of(model)}: {name} ({type(module).__name__}) has no part {part!r} beside a skip")
            cut: set[nn.Module] = set()
            for end in ends:
                exits.callback(end.register_forward_hook(partial(_silence, cut)).remove)
            exits.callback(module.register_forward_hook(partial(_check_was_cut, cut, ends, name)).remove)
        yield


def _leaves(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Stages hold their blocks in `blocks`, and stacks may hold stacks."""
    stage = getattr(module, "blocks", None)
    if isinstance(stage, nn.Sequential | nn.ModuleList):
        name, module = f"{name}.blocks", stage
    if isinstance(module, nn.Sequential | nn.ModuleList) or type(module).__name__ == "RegStage":
        for child_name, child in module.named_children():
            yield from _leaves(f"{name}.{child_name}", child)
    else:
        yield name, module


def _ends(block: nn.Module, part: str) -> list[nn.Module]:
    """The modules that give what is added to the skip; none if the block has no such part.

    In timm a branch ends in its drop_path, after norms and scales; where one drop_path serves several branches, they end in the
    mixer and in the MLP, up to a factor. ResNet's has no drop_path unless paths are dropped: it ends in the last norm, or, in
    selective-kernel ResNets, the last convolution with its norm. Parallel ViTs have several branches of a kind.
    """
    if part == "block":
        ends = _drop_paths(block)
        last = next((getattr(block, name) for name in ("bn3", "bn2", "conv3", "conv2") if hasattr(block, name)), None)
        return ends or ([last] if isinstance(last, nn.Module) and hasattr(block, "downsample") else [])
    branches = getattr(block, "attns" if part == "attention" else "ffns", None)
    if branches is not None:
        return _drop_paths(branches)
    mixer = getattr(block, "attn", getattr(block, "token_mixer", None))
    if mixer is None or (part == "attention" and not (hasattr(mixer, "num_heads") or hasattr(mixer, "heads"))):
        return []  # pooling and convolutions are no attention, and the MLP of ConvNeXt has no skip of its own
    branch, drop_path = (mixer, "drop_path1") if part == "attention" else (getattr(block, "mlp", None), "drop_path2")
    return [] if branch is None else [getattr(block, drop_path, branch)]


def _drop_paths(module: nn.Module) -> list[nn.Module]:
    return [each for name, each in module.named_modules() if name.rpartition(".")[2].startswith("drop_path")]


def _silence(cut: set[nn.Module], module: nn.Module, args: Any, output: Tensor) -> Tensor:
    cut.add(module)
    return torch.zeros_like(output)


def _check_was_cut(cut: set[nn.Module], ends: list[nn.Module], name: str, block: nn.Module, args: Any, output: Any) -> None:
    """Some blocks have a skip only where sizes allow one."""
    if not cut.issuperset(ends):
        raise UserError(f"{name} ({type(block).__name__}) ran without a skip; accepted: blocks that add to one")
    cut.clear()
