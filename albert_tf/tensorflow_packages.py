"""The packages of TensorFlow: which releases are supported, and whether the installed ones fit.

tensorflow, tf_keras and tensorflow-text are released together, and only work in the same release.
`pip install albert-tf2` installs none of them, because pip would replace a TensorFlow that is there
by the newest one; the extras `tf216` to `tf221` install those of a release (docs/install.md).

Nothing is imported to find out what is installed, so a mistake is reported early, and not by a
missing symbol, or by Keras 3, in the middle of an import.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import sys

Release = tuple[int, int]

OLDEST: Release = (2, 16)
NEWEST: Release = (2, 21)
DEVELOPED_ON: Release = (2, 20)  # where all packages exist, those for TPUs included

# What has the module `tensorflow`; a machine has one of them.
_TENSORFLOWS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-tpu",
    "tensorflow-macos",
    "tensorflow-rocm",
    "tf-nightly",
)


def installed_release() -> Release | None:
    """Returns the release of TensorFlow that is installed, such as (2, 20); None if unknown."""
    version = _tensorflow_version()
    return _release(version) if version else None


def requirement(package: str) -> str:
    """Returns what to pass to pip for a package in the release of the installed TensorFlow.

    With TensorFlow 2.20.0, `requirement("tf_keras")` is `'tf_keras~=2.20.0'`, with the quotes.
    """
    return f"'{package}~={_text(installed_release() or DEVELOPED_ON)}.0'"


@functools.cache
def check() -> None:
    """Checks that TensorFlow and tf_keras are installed in a supported release, and fit together.

    Raises:
        ValueError: they do not. The message is a line, with the command that helps.
    """
    extra = f"pip install 'albert-tf2[tf{_text(DEVELOPED_ON).replace('.', '')}]'"
    version = _tensorflow_version()
    if version is None:
        if importlib.util.find_spec("tensorflow") is None:
            raise ValueError(f"TensorFlow is not installed. Run: {extra}")
        return  # a build without a record of its release
    release = _release(version)
    if release is not None and not OLDEST <= release <= NEWEST:
        raise ValueError(
            f"TensorFlow {version} is installed; supported are {_text(OLDEST)} to {_text(NEWEST)}. "
            f"In a new environment, run: {extra}"
        )
    if importlib.util.find_spec("tf_keras") is None:
        raise ValueError(
            f"tf_keras is not installed, and Keras 3 does not replace it. Run: pip install "
            f"{requirement('tf_keras')}"
        )
    _check_same_release("tf_keras", version)


def require_text(purpose: str) -> None:
    """Checks that tensorflow-text is installed in the release of TensorFlow.

    Args:
        purpose: what needs it, as the beginning of a sentence.

    Raises:
        ValueError: it is not installed, or of another release. The message is a line.
    """
    if not has_text():
        raise ValueError(
            f"{purpose} requires tensorflow-text: pip install {requirement('tensorflow-text')}"
        )
    version = _tensorflow_version()
    if version is not None:
        _check_same_release("tensorflow-text", version)


def has_text() -> bool:
    """Returns whether tensorflow-text is installed."""
    return importlib.util.find_spec("tensorflow_text") is not None


def require_model_garden() -> None:
    """Checks that tf-models-official is installed, of which a function connects the workers.

    Raises:
        ValueError: it is not. The message is a line.
    """
    if importlib.util.find_spec("official") is None:
        raise ValueError(
            "training on several machines requires tf-models-official: pip install --no-deps "
            "tf-models-official"  # the other packages that it names are not needed here
        )


def _check_same_release(package: str, tensorflow_version: str) -> None:
    version = _version(package)
    if version and _release(version) != _release(tensorflow_version):
        raise ValueError(
            f"{package} {version} does not fit TensorFlow {tensorflow_version}. Run: pip install "
            f"{requirement(package)}"
        )


def _tensorflow_version() -> str | None:
    module = sys.modules.get("tensorflow")
    if module is not None and hasattr(module, "__version__"):
        return str(module.__version__)
    return next(filter(None, map(_version, _TENSORFLOWS)), None)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _release(version: str) -> Release | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _text(release: Release) -> str:
    return f"{release[0]}.{release[1]}"
