"""The runtimes that compute exported models, and which of them computes a file.

An exported model is opened if its files and labels are those that `albert convert` has recorded:
neither a file nor `run.json` of another model may get between them in silence.

Importing this imports none of the runtimes.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence

import google_crc32c

from albert_tf.checkpoints import exported_files, run_record
from albert_tf.checkpoints.exported_files import ONNX_FILE, OPENVINO_FILE
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.finetuning.batching import Step
from albert_tf.inference import onnx_runtime, openvino_runtime
from albert_tf.inference.settings import AUTO, OPENVINO

_LABELS = "exported labels"  # entry of the files of a record
_PLACE = "Exception from "  # start of the lines in OpenVINO's messages that name its source files


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        name: name of the engine.
        package: the Python package, which the extra of the same name installs.
        precisions: the precisions that it computes in.
        open: returns what computes a batch, given the contents of `exported_files.read`, the
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
        contents = exported_files.read(path)
        check(path, contents, record)
        try:
            return self.open(contents, precision, threads)
        except Exception as error:  # of several types, from C++
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = next((line for line in lines if not line.startswith(_PLACE)), repr(error))
            raise ValueError(
                f"{path}: {self.package} cannot open it, or a file beside it: {reason.strip()}"
            ) from error


RUNTIMES = {
    OPENVINO_FILE: Runtime(
        OPENVINO, "openvino", tuple(openvino_runtime.PRECISIONS), openvino_runtime.open_files
    ),
    ONNX_FILE: Runtime(
        "onnx",
        "onnxruntime",
        ("float32",),
        lambda contents, precision, threads: onnx_runtime.open_files(contents, threads),
    ),
}


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
            what = f"the labels in {run_record.FILE}, {', '.join(record.labels)}, are not those"
        else:
            what = f"{name} ({found}) is not the file ({recorded})"
        raise ValueError(
            f"{folder}: {what} of the export: something was changed, or copied there from another "
            "model. Restore the folder, or convert the model again"
        )


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
