"""Exports fine-tuned models as TFLite files for mobile and embedded devices.

    runner = tf.lite.Interpreter("albert_model.tflite").get_signature_runner("serving_default")
    runner(input_ids=ids, input_mask=mask, segment_ids=segments)  # int32 [1, S] each

A file may contain metadata in the format for Android's text classifiers. The metadata names the
inputs, the label file and the tokenizer; their files are in a ZIP archive appended to the model.

Source of the metadata: `metadata_schema.fbs` (identifier M001) and the metadata writer of
`BertNLClassifier` in tensorflow/tflite-support. MediaPipe's `TextClassifier` reads the same format.

Letters: K labels, S sequence length.
"""

from __future__ import annotations

import dataclasses
import io
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import flatbuffers
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.lite.python import schema_py_generated as schema

from albert_tf import acceleration, files
from albert_tf.serving.saved_model import Tensors

FILE = "albert_model.tflite"  # official
NONE = "none"
FLOAT16 = "float16"
INT8 = "int8"
LABELS_FILE = "labels.txt"
METADATA = "TFLITE_METADATA"  # name of the metadata buffer in a model
METADATA_IDENTIFIER = b"M001"
MODEL_IDENTIFIER = b"TFL3"
BUFFER_ALIGNMENT = 16  # in bytes, so that the weights can be memory-mapped

# Names of the inputs in the metadata, which readers look up.
INPUT_NAMES = {"input_ids": "ids", "input_mask": "mask", "segment_ids": "segment_ids"}
OUTPUT_NAME = "probability"
# Enum values of the metadata schema.
AXIS_LABELS = 2  # of AssociatedFileType
VOCABULARY = 5
FEATURE_PROPERTIES = 1  # ContentProperties
BERT_TOKENIZER = 4  # of ProcessUnitOptions
SENTENCEPIECE_TOKENIZER = 5


@dataclasses.dataclass(frozen=True)
class Metadata:
    """The information about a classifier that a program on a device needs.

    Attributes:
        vocabulary_name: file name of the vocabulary.
        vocabulary: content of the vocabulary file.
        is_sentencepiece: whether the vocabulary is a SentencePiece model.
        labels: label names in the order of the probabilities; () for regression.
    """

    vocabulary_name: str
    vocabulary: bytes
    is_sentencepiece: bool
    labels: tuple[str, ...]

    @property
    def associated_files(self) -> dict[str, bytes]:
        """Name → content of the files to append to a model."""
        labels = "".join(f"{label}\n" for label in self.labels).encode()
        return {self.vocabulary_name: self.vocabulary} | ({LABELS_FILE: labels} if labels else {})


@acceleration.plain()
def export_tflite(
    path: str,
    model: Any,
    features: Mapping[str, tf.io.FixedLenFeature],
    outputs: Callable[[Tensors], Tensors],
    quantization: str = NONE,
    metadata: Metadata | None = None,
) -> None:
    """Writes a TFLite model that takes one example of full length at a time.

    Call it by its signature `serving_default` and the names of `features` and `outputs`, because
    the converter does not preserve the order of inputs and outputs.

    Args:
        path: the output file; its folder is created if needed.
        model: as in `saved_model.export_saved_model`.
        features: as in `saved_model.export_saved_model`; the inputs are int32 [1, S].
        outputs: as in `saved_model.export_saved_model`.
        quantization: quantization of the weights: NONE, FLOAT16, or INT8, which is dynamic-range
            quantization with 8-bit integer matmuls. Outputs and activations stay float32.
        metadata: metadata of a classifier whose only output is the probabilities [1, K].

    Raises:
        ValueError: the folder cannot be written to.
    """
    files.make_directory(os.path.dirname(path), "--export_dir")
    specs = [tf.TensorSpec([1, *form.shape], tf.int32, name) for name, form in features.items()]

    @tf.function(input_signature=specs, autograph=False)
    def serve(*tensors: tf.Tensor) -> Tensors:
        return outputs(model(dict(zip(features, tensors, strict=True)), training=False))

    root = tf.train.Checkpoint()
    root.variables = list(model.variables)
    concrete = serve.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], root)
    if quantization != NONE:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantization == FLOAT16:
        converter.target_spec.supported_types = [tf.float16]
    content = converter.convert()
    if metadata is not None:
        content = add_metadata(content, metadata)
    with files.write_atomically(path, "wb") as stream:
        stream.write(content)
    logging.info("Exported to %s (%.1f MB)", path, len(content) / 1e6)


def add_metadata(content: bytes, metadata: Metadata) -> bytes:
    """Adds metadata to a TFLite file, and appends the vocabulary and labels as a ZIP archive.

    Args:
        content: TFLite file of a classifier with the signature `serving_default`.
        metadata: metadata of the classifier.

    Returns:
        The new content of the file.
    """
    model = schema.ModelT.InitFromPackedBuf(content)
    buffer = schema.BufferT()
    entry = schema.MetadataT()
    buffer.data = np.frombuffer(_pack_metadata(_inputs(model), metadata), np.uint8)
    entry.name = METADATA
    entry.buffer = len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    builder = _AlignedBuilder(len(content))
    builder.Finish(model.Pack(builder), file_identifier=MODEL_IDENTIFIER)
    stream = io.BytesIO(builder.Output())
    # Readers memory-map the files, so they must not be compressed; ZIP_STORED is the default.
    with zipfile.ZipFile(stream, "a") as archive:
        for name, file_content in metadata.associated_files.items():
            archive.writestr(zipfile.ZipInfo(name), file_content)
    return stream.getvalue()


class _AlignedBuilder(flatbuffers.Builder):
    """Aligns byte vectors as TFLite's schema requires, which the generated code does not do."""

    def StartVector(self, elemSize: int, numElems: int, alignment: int) -> int:  # noqa: N802, N803
        """Starts a vector; called by the generated code."""
        least = BUFFER_ALIGNMENT if elemSize == 1 else alignment
        return super().StartVector(elemSize, numElems, max(alignment, least))


def _inputs(model: Any) -> list[str]:
    """Returns the input names of the signature in the order of the graph's inputs."""
    (signature,) = model.signatureDefs
    names = {entry.tensorIndex: entry.name.decode() for entry in signature.inputs}
    return [names[index] for index in model.subgraphs[0].inputs]


def _pack_metadata(inputs: Iterable[str], metadata: Metadata) -> bytes:
    """Returns a serialized ModelMetadata table.

    Args:
        inputs: names of the inputs in the order of the graph's inputs.
        metadata: the metadata to serialize.
    """
    builder = flatbuffers.Builder()

    def table(offsets: Mapping[int, int], enumerations: Mapping[int, int] | None = None) -> int:
        """Adds a table from field → offset of an earlier object, and field → enum value."""
        numbers = enumerations or {}
        builder.StartObject(max([*offsets, *numbers], default=-1) + 1)
        for field, offset in offsets.items():
            builder.PrependUOffsetTRelativeSlot(field, offset, 0)
        for field, number in numbers.items():
            builder.PrependUint8Slot(field, number, 0)
        return builder.EndObject()

    def vector(offsets: Iterable[int]) -> int:
        offsets = list(offsets)
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return builder.EndVector()

    def tensor(name: str, associated_files: list[int]) -> int:
        """Adds a TensorMetadata table with name, content and associated files."""
        fields = {0: builder.CreateString(name), 3: table({1: table({})}, {0: FEATURE_PROPERTIES})}
        if associated_files:
            fields[6] = vector(associated_files)
        return table(fields)

    def associated_file(name: str, kind: int) -> int:
        return table({0: builder.CreateString(name)}, {2: kind})

    labels = [associated_file(LABELS_FILE, AXIS_LABELS)] if metadata.labels else []
    vocabulary = vector([associated_file(metadata.vocabulary_name, VOCABULARY)])
    kind = SENTENCEPIECE_TOKENIZER if metadata.is_sentencepiece else BERT_TOKENIZER
    subgraph = {
        2: vector([tensor(INPUT_NAMES[name], []) for name in inputs]),
        3: vector([tensor(OUTPUT_NAME, labels)]),
        5: vector([table({1: table({0: vocabulary})}, {0: kind})]),  # input process units
    }
    fields = {0: builder.CreateString("ALBERT classifier"), 3: vector([table(subgraph)])}
    builder.Finish(table(fields), file_identifier=METADATA_IDENTIFIER)
    return bytes(builder.Output())
