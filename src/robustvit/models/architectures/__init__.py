"""Models that timm lacks, one file a family, registered with timm so that its factory builds them by name.

A name ends with the image size it is for: `_32` for small images, `_224` or nothing for ImageNet. `OWN` lists them all.
"""

from robustvit.models.architectures import cait, hierarchical, resnet, vit, wide_resnet, xcit
from robustvit.models.architectures.registry import OWN

__all__ = ["OWN", "cait", "hierarchical", "resnet", "vit", "wide_resnet", "xcit"]
