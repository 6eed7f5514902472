"""The model that examples use."""

from tests.inference.conftest import pretrained_dir

__all__ = ["pretrained_dir"]
