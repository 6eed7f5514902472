"""The runtimes that compute exported models without TensorFlow, on the CPU: OpenVINO, ONNX Runtime.

An exported model is opened if its files and labels are those that `albert convert` has recorded:
neither a file nor `run.json` of another model may get between them in silence.

The packages openvino and onnxruntime are extras: importing this imports neither.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.util
import json
import logging as python_logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import google_crc32c
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import run_record
from albert_tf.checkpoints.model_folder import ONNX_FILE, OPENVINO_FILE, read_exported
from albert_tf.checkpoints.run_record import FileRecord, RunRecord

if TYPE_CHECKING:  # what needs TensorFlow
    import openvino


AUTO, TENSORFLOW, OPENVINO = ENGINES = ("auto", "tensorflow", "openvino")

Array: TypeAlias = NDArray[Any]  # of any dtype
Batch: TypeAlias = dict[str, Array]
Step: TypeAlias = Callable[[Batch], Mapping[str, Array]]  # computes the outputs of a batch

_LABELS = "exported labels"  # entry of the files of a record
_PLACE = "Exception from "  # start of the lines in OpenVINO's messages that name its source files


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: name of the engine.
        package: the Python package, which the extra of the same name installs.
        precisions: the precisions that it computes in.
        open: returns what computes a batch, given the contents of `read_exported`, the
            precision and the number of threads (None for one per core).
    """

    name: str
    package: str
    precisions: tuple[str, ...]
    open: Callable[[Mapping[str, bytes], str, int | None], Step]

    def open_file(self, path: str, record: RunRecord, precision: str, threads: int | None) -> Step:
        """Returns what computes a batch.

        Args:
            path: the file.
            record: the record beside it.
            precision: one of `precisions`.
            threads: number of threads; None for one per core.

        Raises:
            ValueError: the file is damaged, or not the one that was recorded.
            FileNotFoundError: a file beside it is missing.
        """
        contents = read_exported(path)
        check(path, contents, record)
        try:
            return self.open(contents, precision, threads)
        except Exception as error:  # of several types, from C++
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if not line.startswith(_PLACE)), repr(error))
            raise ValueError(
                f"{path}: {self.package} cannot open it, or a file beside it: {reason.strip()}"
            ) from error


def identify(contents: Mapping[str, bytes], labels: Sequence[str]) -> dict[str, FileRecord]:
    """Returns what the record of an exported model says of its files and labels.

    Checksums are CRC-32C, because a SHA-256 takes several times as long as reading the files.

    Args:
        contents: name → content of the files.
        labels: the labels, in the order of the outputs.
    """
    found = {
        name: FileRecord(f"crc32c {google_crc32c.value(content):08x}, {len(content)} bytes")
        for name, content in contents.items()
    }
    found[_LABELS] = FileRecord.of_text(json.dumps(labels), "")
    return found


def check(path: str, contents: Mapping[str, bytes], record: RunRecord) -> None:
    """Raises ValueError if files or labels are not those of the export.

    Args:
        path: the exported file.
        contents: name → content of all its files.
        record: the record beside it; one of before there were checksums has none.
    """
    folder = os.path.dirname(path)
    for name, found in identify(contents, record.labels).items():
        recorded = record.files.get(name, found)
        if found == recorded:
            continue
        if name == _LABELS:
            labels = files.quote_all(record.labels)
            what = f"the labels in {run_record.FILE}, {labels}, are not those"
        else:
            what = f"{name} ({found}) is not the file ({recorded})"
        raise ValueError(
            f"{folder}: {what} of the export: something was changed, or copied there from another "
            "model. Restore the folder, or convert the model again"
        )


def open_onnx(
    contents: Mapping[str, bytes], precision: str = "float32", threads: int | None = None
) -> Step:
    """Returns what computes a batch, which several threads may call at the same time.

    Features that are not inputs of the model are left out.

    Args:
        contents: name → content of the file.
        precision: "float32"; there is no other.
        threads: number of threads; None for one per core.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    (model,) = contents.values()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    def compute(batch: Batch) -> dict[str, Array]:
        values = session.run(outputs, {name: batch[name] for name in inputs})
        return dict(zip(outputs, values, strict=True))

    return compute


_DEVICE = "CPU"
# Precision in this library → OpenVINO's name. It only applies to matmuls and ops that follow them.
OPENVINO_PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


@functools.cache
def openvino_core() -> openvino.Core:
    """Returns OpenVINO's runtime, which is never released.

    Released in another thread than it was made in, it would leave that thread an alternate signal
    stack without memory: the next signal, such as that of Ctrl-C, would end the process.
    """
    # The package would fork the process to report each import and conversion to Google Analytics.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    handlers = list(python_logging.root.handlers)
    import openvino

    python_logging.root.handlers[:] = handlers  # the import removes that of absl
    return openvino.Core()


def compile_model(
    model: openvino.Model, precision: str = "float32", threads: int | None = None
) -> openvino.CompiledModel:
    """Returns a compiled model.

    Args:
        model: the model.
        precision: precision of the computation: "float32", "bfloat16" or "float16".
        threads: number of threads; None for one per core.
    """
    hints = {
        "INFERENCE_PRECISION_HINT": OPENVINO_PRECISIONS[precision],
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
    }
    if threads:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    return openvino_core().compile_model(model, _DEVICE, hints)


def step_of(compiled: openvino.CompiledModel) -> Step:
    """Returns what computes a batch; several threads may call it at the same time.

    Features that are not inputs of the model are left out.
    """
    inputs = [port.get_any_name() for port in compiled.inputs]
    outputs = {name: port for port in compiled.outputs for name in port.get_names()}
    free: collections.deque[openvino.InferRequest] = collections.deque()  # one for each thread

    def compute(batch: Batch) -> dict[str, Array]:
        try:
            request = free.pop()
        except IndexError:  # all are in use by other threads
            request = compiled.create_infer_request()
        try:
            results = request.infer({name: batch[name] for name in inputs})
            return {name: results[port] for name, port in outputs.items()}
        finally:
            free.append(request)

    return compute


def open_with_openvino(
    contents: Mapping[str, bytes], precision: str = "float32", threads: int | None = None
) -> Step:
    """Returns what computes a batch with the model in OpenVINO's files, or in ONNX's.

    Args:
        contents: name → content, as of `read_exported`.
        precision: as in `compile_model`.
        threads: likewise.
    """
    model = openvino_core().read_model(*contents.values())
    return step_of(compile_model(model, precision, threads))


RUNTIMES = {
    OPENVINO_FILE: Runtime(OPENVINO, "openvino", tuple(OPENVINO_PRECISIONS), open_with_openvino),
    ONNX_FILE: Runtime(
        "onnx",
        "onnxruntime",
        ("float32",),
        open_onnx,
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
