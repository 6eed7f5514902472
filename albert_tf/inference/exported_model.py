"""The runtimes that compute exported models, and which of them computes a file.

Importing this imports none of them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable

from albert_tf.checkpoints.exported_files import ONNX_FILE, OPENVINO_FILE
from albert_tf.finetuning.batching import Step
from albert_tf.inference import onnx_runtime, openvino_runtime
from albert_tf.inference.settings import AUTO, OPENVINO

_PLACE = "Exception from "  # start of the lines in OpenVINO's messages that name its source files


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: name of the engine.
        package: the Python package, which the extra of the same name installs.
        precisions: the precisions that it computes in.
        open: returns what computes a batch, given the file, the precision and the number of threads
            (None for one per core).
    """

    name: str
    package: str
    precisions: tuple[str, ...]
    open: Callable[[str, str, int | None], Step]

    def open_file(self, path: str, precision: str, threads: int | None) -> Step:
        """Returns what computes a batch.

        Args:
            path: the file.
            precision: one of `precisions`, or "auto" for float32.
            threads: number of threads; None for one per core.

        Raises:
            ValueError: the file is damaged.
        """
        try:
            return self.open(path, "float32" if precision == AUTO else precision, threads)
        except Exception as error:  # of several types, from C++
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if not line.startswith(_PLACE)), repr(error))
            raise ValueError(
                f"{path}: {self.package} cannot open it, or a file beside it: {reason.strip()}"
            ) from error


RUNTIMES = {
    OPENVINO_FILE: Runtime(
        OPENVINO, "openvino", tuple(openvino_runtime.PRECISIONS), openvino_runtime.open_file
    ),
    ONNX_FILE: Runtime(
        "onnx",
        "onnxruntime",
        ("float32",),
        lambda path, precision, threads: onnx_runtime.open_file(path, threads),
    ),
}


def choose_runtime(path: str, engine: str = AUTO, precision: str = AUTO) -> Runtime:
    """Returns the runtime for a file: its own, or OpenVINO, which reads ONNX files as well.

    Args:
        path: the file.
        engine: "auto" or "openvino".
        precision: the precision that it is to compute in; "auto" for float32.

    Raises:
        ValueError: the runtime is not installed, or it does not compute in this precision; or
            `engine` is another one.
    """
    if engine not in (AUTO, OPENVINO):
        raise ValueError(
            f"engine={engine}: {path} is for other runtimes. Leave the engine out, or take the "
            "folder that it was converted from"
        )
    runtime = RUNTIMES[OPENVINO_FILE if engine == OPENVINO else os.path.basename(path)]
    if importlib.util.find_spec(runtime.package) is None:
        raise ValueError(
            f"{path} requires the package {runtime.package}: "
            f"pip install 'albert-tf2[{runtime.package}]'"
        )
    if precision not in (AUTO, *runtime.precisions):
        raise ValueError(
            f"--precision={precision}: {runtime.package} computes {path} in float32 only"
        )
    return runtime
