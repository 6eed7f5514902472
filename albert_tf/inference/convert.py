r"""Converts an ALBERT checkpoint to another format, or prints what it contains.

    albert convert --inspect --input=albert_base_zh/

prints the kind of the checkpoint, which of its tensors a model with its config would load, and
which release it is: the checksum of every tensor is compared with those of nine releases by Google
and albert_zh, and the tensors that were altered, are missing or were added are listed.

    albert convert --input=albert_base_v2 --output=albert_base_hf \
        --output_format=huggingface

writes a new folder. The formats are `tensorflow` (model.ckpt-best.* and albert_config.json, for the
programs of Google and of this repository), `huggingface` (for from_pretrained in transformers),
`tf_hub` (a SavedModel for TensorFlow Hub), `saved_model` (for TensorFlow Serving), and `tflite`,
`onnx` and `openvino`, which take ids and are compared with the model before the folder gets its
name. The last four compute what the model was fine-tuned for, or else embeddings (docs/deploy.md).

The input is a TensorFlow checkpoint of Google's ALBERT, albert_zh or the Model Garden, a TF-Hub
module, or a Hugging Face model. It is given as a checkpoint prefix, a file, or a folder that
contains one of these. Pickle files are refused. The config, the vocabulary and the label names are
searched for in the same folder and are converted as well: to config.json, spiece.model or
vocab.txt, tokenizer.json and id2label for Hugging Face, and to files of the original names and
run.json for the other formats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from albert_tf import tensorflow_packages
from albert_tf.export import convert
from albert_tf.export.formats import FORMATS
from albert_tf.export.quantizations import NONE, QUANTIZATIONS, TOLERANCE
from albert_tf.settings import redefined, setting


@dataclasses.dataclass(frozen=True)
class Settings(convert.Settings):
    """What to convert."""

    output_format: str = redefined(
        convert.Settings,
        "output_format",
        "tensorflow",
        choices=tuple(FORMATS),
    )
    quantization: str = setting(
        NONE,
        "Data type of the weights: float32 (none); for a TFLite model, float16; for a TFLite or "
        "ONNX model, int8, with activations that are quantized on the fly.",
        choices=QUANTIZATIONS,
    )
    quantization_tolerance: float = setting(
        TOLERANCE,
        "Of float16 and int8: the largest difference of an output from the model, as a share of "
        "the output's largest number, above which nothing is written. It is measured on random ids "
        "and on the examples that the run keeps.",
        minimum=0.0,
    )
    max_seq_length: int | None = setting(
        None,
        "Length of the rows of a TFLite model, and maximum length of texts for a SavedModel, in "
        "tokens; if not given, that of training, or else the model's maximum.",
        minimum=1,
    )


def run(settings: Settings) -> Iterator[str]:
    """Yields what the input contains and, unless `inspect` is set, writes the output.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    form = FORMATS[settings.output_format]
    asked = settings.quantization
    if asked not in form.quantizations:
        able = " or ".join(name for name, row in FORMATS.items() if asked in row.quantizations)
        raise ValueError(f"--quantization={asked} requires --output_format={able}")
    if settings.inspect or form.write_model is None:
        yield from convert.run(settings)
        return
    form.check_packages()
    tensorflow_packages.check()
    convert.check_output(settings)
    # These import TensorFlow, for which --help does not wait.
    from albert_tf.finetuning import registry
    from albert_tf.inference import model_task
    from albert_tf.inference.exporting import deploy

    source = convert.open_input(settings)
    task = model_task.find_task(source)
    if form.write_weights is not None and not registry.get(task).is_fine_tuned:
        yield from convert.run(settings)
        return
    yield f"{source.checkpoint}: {task}"
    yield deploy(
        source,
        settings.output or "",
        settings.output_format,
        settings.quantization,
        settings.max_seq_length,
        settings.quantization_tolerance,
    )
    yield f"wrote {settings.output} ({settings.output_format})"
