"""ALBERT in TensorFlow 2, compatible with google-research/albert.

    >>> config = albert_tf.AlbertConfig.from_json_file("albert_config.json")
    >>> encoder = albert_tf.AlbertEncoder(config)
    >>> report = albert_tf.load_checkpoint(encoder, "albert_tiny/")
    >>> report.fits
    True

The names in `__all__` are the public API. They are imported on first use, so that `import
albert_tf`, and with it the `--help` of every program, does not have to wait for TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.abc
import os
import platform
import sys
from typing import TYPE_CHECKING, Any

from albert_tf import tensorflow_packages
from albert_tf.spelling import did_you_mean
from albert_tf.version import __version__ as __version__

if TYPE_CHECKING:
    from albert_tf.checkpoints.download import download as download
    from albert_tf.checkpoints.loading import load_checkpoint as load_checkpoint
    from albert_tf.finetuning import classification as classification
    from albert_tf.finetuning import race as race
    from albert_tf.finetuning import squad as squad
    from albert_tf.finetuning import token_classification as token_classification
    from albert_tf.inference.exporting import export_saved_model as export_saved_model
    from albert_tf.inference.opening import load_predictor as load_predictor
    from albert_tf.inference.pretrained import from_pretrained as from_pretrained
    from albert_tf.inference.saving import PretrainedCheckpoint as PretrainedCheckpoint
    from albert_tf.inference.saving import save_pretrained as save_pretrained
    from albert_tf.model.config import AlbertConfig as AlbertConfig
    from albert_tf.model.heads import AlbertForAnswerableSpans as AlbertForAnswerableSpans
    from albert_tf.model.heads import AlbertForClassification as AlbertForClassification
    from albert_tf.model.heads import AlbertForMultipleChoice as AlbertForMultipleChoice
    from albert_tf.model.heads import AlbertForSpans as AlbertForSpans
    from albert_tf.model.heads import AlbertForTokenClassification as AlbertForTokenClassification
    from albert_tf.model.modeling import AlbertEncoder as AlbertEncoder
    from albert_tf.model.modeling import AlbertForPretraining as AlbertForPretraining
    from albert_tf.model.optimization import AdamW as AdamW
    from albert_tf.model.optimization import Lamb as Lamb
    from albert_tf.model.optimization import fine_tuning_optimizer as fine_tuning_optimizer
    from albert_tf.model.schedules import WarmUpPolynomialDecay as WarmUpPolynomialDecay
    from albert_tf.model.tokenization import FullTokenizer as FullTokenizer
    from albert_tf.model.tokenizer_layer import TokenizerLayer as TokenizerLayer

# TensorFlow reads this when it is imported. By default, it leaves oneDNN off on x86 processors
# without AVX-512 VNNI, where matmuls take up to twice as long without it.
if "tensorflow" not in sys.modules and platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

_TASKS = ("classification", "race", "squad", "token_classification")
_MODULES = {
    "AdamW": "model.optimization",
    "AlbertConfig": "model.config",
    "AlbertEncoder": "model.modeling",
    "AlbertForAnswerableSpans": "model.heads",
    "AlbertForClassification": "model.heads",
    "AlbertForMultipleChoice": "model.heads",
    "AlbertForPretraining": "model.modeling",
    "AlbertForSpans": "model.heads",
    "AlbertForTokenClassification": "model.heads",
    "FullTokenizer": "model.tokenization",
    "Lamb": "model.optimization",
    "PretrainedCheckpoint": "inference.saving",
    "TokenizerLayer": "model.tokenizer_layer",
    "WarmUpPolynomialDecay": "model.schedules",
    "download": "checkpoints.download",
    "export_saved_model": "inference.exporting",
    "fine_tuning_optimizer": "model.optimization",
    "from_pretrained": "inference.pretrained",
    "load_checkpoint": "checkpoints.loading",
    "load_predictor": "inference.opening",
    "save_pretrained": "inference.saving",
}
# `load_predictor` itself checks for TensorFlow where a folder needs it.
_WITHOUT_TENSORFLOW = ("AlbertConfig", "FullTokenizer", "download", "load_predictor")
__all__ = ["__version__", *_TASKS, *_MODULES]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562).

    Raises:
        AttributeError: there is no such name, or the packages that it needs are not installed or do
            not fit. The message says what to install.
    """
    if name in _TASKS:
        return importlib.import_module(f"{__name__}.finetuning.{name}")
    if name not in _MODULES:
        meant = f". {did_you_mean(name, __all__)}".removesuffix(". ")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")
    try:
        _check_packages(name)
    except ValueError as error:
        raise AttributeError(str(error)) from None
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def _check_packages(name: str) -> None:
    """Raises ValueError if the packages that a public name needs are not installed, or not fit."""
    if name in _MODULES and name not in _WITHOUT_TENSORFLOW:
        tensorflow_packages.check()
    if name == "TokenizerLayer":
        tensorflow_packages.require_text(name)


class _MissingPackages(importlib.abc.MetaPathFinder):
    """Lets `from albert_tf import AlbertEncoder` say what is not installed.

    Where a package lacks a name, Python looks for a module of that name, and its own error would
    not have the message of the AttributeError.
    """

    def find_spec(self, fullname: str, *others: object) -> None:
        """Raises ImportError for a public name whose packages are not installed."""
        package, _, name = fullname.rpartition(".")
        if package == __name__:
            try:
                _check_packages(name)
            except ValueError as error:
                raise ImportError(str(error), name=fullname) from None


sys.meta_path.append(_MissingPackages())


def __dir__() -> list[str]:
    """Returns the public names, for tab completion."""
    return list(__all__)
