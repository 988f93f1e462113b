"""Models: any timm backbone behind one contract, images in [0, 1] in and logits out."""

from robustvit.models.classifier import Classifier, ModelSpec, build, fingerprint, load_model, resolved

__all__ = ["Classifier", "ModelSpec", "build", "fingerprint", "load_model", "resolved"]
