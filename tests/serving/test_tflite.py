"""Tests the outputs, quantization and metadata of TFLite files of fine-tuned models."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from flatbuffers import encode, number_types, table
from tensorflow.lite.python import schema_py_generated as schema

from albert_tf.config import AlbertConfig
from albert_tf.heads import AlbertForClassification
from albert_tf.serving import saved_model, tflite
from tests.conftest import TINY_SHAPE

pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")

LENGTH, NUM_LABELS = 11, 3
# The converter does not quantize weights with fewer than 1024 elements.
SHAPE = {"vocab_size": 997, "hidden_size": 44, "intermediate_size": 60, "num_hidden_layers": 2}
CONFIG = AlbertConfig(**TINY_SHAPE | SHAPE | {"num_hidden_groups": 1, "type_vocab_size": 2})
METADATA = tflite.Metadata("vocab.txt", b"[PAD]\nsea\n", False, ("no", "yes", "天"))
TYPES = {"none": np.float32, "float16": np.float16, "int8": np.int8}


@pytest.fixture(scope="module", name="model")
def make_model():
    return AlbertForClassification(CONFIG, NUM_LABELS)


@pytest.fixture(scope="module", name="batch")
def make_batch():
    mask = (np.arange(LENGTH) < np.array([[11], [7], [5]])).astype(np.int32)
    ids = np.random.default_rng(5).integers(5, 997, mask.shape).astype(np.int32)
    segments = (np.arange(LENGTH) >= 4).astype(np.int32)
    return {"input_ids": ids * mask, "input_mask": mask, "segment_ids": segments * mask}


def outputs(found):
    return {"probabilities": tf.nn.softmax(found)}


def export(path, model, **options):
    tflite.export_tflite(str(path), model, saved_model.token_features(LENGTH), outputs, **options)
    return path.read_bytes()


def predict(content, batch):
    """Returns name → outputs of all rows."""
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(batch)
    rows = range(len(batch["input_ids"]))
    found = [runner(**{name: value[i : i + 1] for name, value in batch.items()}) for i in rows]
    return {name: np.concatenate([row[name] for row in found]) for name in found[0]}


@pytest.fixture(scope="module", name="plain")
def export_plain(model, tmp_path_factory):
    return export(tmp_path_factory.mktemp("plain") / "model.tflite", model)


@pytest.mark.ci
def test_outputs_have_the_same_names_and_values(model, batch, plain):
    found = predict(plain, batch)
    assert set(found) == {"probabilities"}
    wanted = outputs(model(batch, training=False))["probabilities"]
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-6)


@pytest.mark.ci
@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_quantized_weights_are_smaller_with_similar_outputs(
    quantization, plain, model, batch, tmp_path
):
    path = tmp_path / "new" / "model.tflite"
    content = export(path, model, quantization=quantization)
    assert [entry.name for entry in path.parent.iterdir()] == ["model.tflite"]
    weights = {"none": weight_bytes(plain), quantization: weight_bytes(content)}
    item_sizes = {name: np.dtype(TYPES[name]).itemsize for name in weights}
    assert weights[quantization] / weights["none"] == pytest.approx(
        item_sizes[quantization] / item_sizes["none"], rel=0.1
    )
    wanted, found = (predict(file, batch)["probabilities"] for file in (plain, content))
    assert 0 < np.abs(found - wanted).max() < 0.01


def weight_bytes(content):
    """Returns the size of the weights that are large enough to be quantized."""
    buffers = schema.ModelT.InitFromPackedBuf(content).buffers
    sizes = [0 if buffer.data is None else len(buffer.data) for buffer in buffers]
    return sum(size for size in sizes if size >= 1024)


@pytest.mark.ci
def test_metadata_does_not_change_outputs(plain, batch):
    content = tflite.add_metadata(plain, METADATA)
    for name, value in predict(plain, batch).items():
        np.testing.assert_array_equal(predict(content, batch)[name], value)
    buffers = schema.ModelT.InitFromPackedBuf(content).buffers
    weights = [b.data.tobytes() for b in buffers if b.data is not None and len(b.data) >= 1024]
    starts = [content.find(weight) % tflite.BUFFER_ALIGNMENT for weight in weights]
    assert weights
    assert set(starts) == {0}
    assert tflite.add_metadata(plain, METADATA) == content


class Reader:
    """Reads a table of a flatbuffer, field by field."""

    def __init__(self, buffer, position):
        self.table = table.Table(buffer, position)

    @classmethod
    def root(cls, content):
        start = encode.Get(number_types.UOffsetTFlags.packer_type, content, 0)
        return cls(bytearray(content), start)

    def _at(self, field):
        offset = self.table.Offset(4 + 2 * field)
        assert offset, f"field {field} is missing"
        return offset + self.table.Pos

    def has(self, field):
        return self.table.Offset(4 + 2 * field) != 0

    def text(self, field):
        return self.table.String(self._at(field)).decode()

    def byte(self, field):
        return self.table.Get(number_types.Uint8Flags, self._at(field))

    def one(self, field):
        return Reader(self.table.Bytes, self.table.Indirect(self._at(field)))

    def all(self, field):
        offset = self.table.Offset(4 + 2 * field)
        start, length = self.table.Vector(offset), self.table.VectorLen(offset)
        places = [self.table.Indirect(start + 4 * number) for number in range(length)]
        return [Reader(self.table.Bytes, place) for place in places]


def read_metadata(content):
    """Returns the content of `TFLITE_METADATA` as nested dicts, with all fields checked."""
    model = schema.ModelT.InitFromPackedBuf(content)
    (entry,) = (entry for entry in model.metadata if entry.name == b"TFLITE_METADATA")
    packed = model.buffers[entry.buffer].data.tobytes()
    assert packed[4:8] == b"M001"
    (subgraph,) = Reader.root(packed).all(3)
    (output,) = subgraph.all(3)
    (unit,) = subgraph.all(5)
    (vocabulary,) = unit.one(1).all(0)
    labels = [(file.text(0), file.byte(2)) for file in output.all(6)] if output.has(6) else []
    return {
        "inputs": [tensor.text(0) for tensor in subgraph.all(2)],
        "output": (output.text(0), labels),
        "tokenizer": (unit.byte(0), vocabulary.text(0), vocabulary.byte(2)),
        "graph": [model.subgraphs[0].tensors[i].name.decode() for i in model.subgraphs[0].inputs],
    }


@pytest.mark.parametrize(
    ("metadata", "output", "tokenizer", "names"),
    [
        (
            METADATA,
            ("probability", [("labels.txt", 2)]),
            (4, "vocab.txt", 5),
            {"vocab.txt": "[PAD]\nsea\n", "labels.txt": "no\nyes\n天\n"},
        ),
        (
            tflite.Metadata("30k-clean.model", b"\0model", True, ()),
            ("probability", []),
            (5, "30k-clean.model", 5),
            {"30k-clean.model": "\0model"},
        ),
    ],
)
def test_metadata_and_files_are_read_back(plain, metadata, output, tokenizer, names):
    content = tflite.add_metadata(plain, metadata)
    found = read_metadata(content)
    assert (found["output"], found["tokenizer"]) == (output, tokenizer)
    by_tensor = {
        "serving_default_input_ids:0": "ids",
        "serving_default_input_mask:0": "mask",
        "serving_default_segment_ids:0": "segment_ids",
    }
    assert found["inputs"] == [by_tensor[name] for name in found["graph"]]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == names
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["float16", "int8"])
def test_mediapipe_classifies_texts_with_only_the_file(
    quantization, toy_tokenizer, toy_spm_model, model, tmp_path
):
    text = pytest.importorskip("mediapipe.tasks.python.text", reason="mediapipe is not installed")
    content = Path(toy_spm_model).read_bytes()
    metadata = tflite.Metadata("toy.model", content, True, ("no", "yes", "天"))
    path = tmp_path / "model.tflite"
    export(path, model, quantization=quantization, metadata=metadata)
    lines = ["The river carries the rain.", "A small boat, waits at the landing!"]
    batch = toy_tokenizer(lines, max_length=LENGTH, padding="max_length")
    wanted = outputs(model(batch, training=False))["probabilities"].numpy()
    with text.TextClassifier.create_from_model_path(str(path)) as classifier:
        for line, row in zip(lines, wanted, strict=True):
            (found,) = classifier.classify(line).classifications
            scores = {category.category_name: category.score for category in found.categories}
            assert [scores[label] for label in metadata.labels] == pytest.approx(row, abs=0.01)


def test_a_folder_that_cannot_be_written_is_reported(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="--export_dir: cannot write to"):
        tflite.export_tflite(str(tmp_path / "file" / "model.tflite"), model, {}, outputs)
