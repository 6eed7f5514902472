r"""Writes training steps as programs that a GPU runs without TensorFlow, for `run_gpu_kit.py`.

    python benchmarks/make_gpu_kit.py gpu_kit
    python benchmarks/run_gpu_kit.py gpu_kit        # on the machine with the GPU

TensorFlow lowers each program here, for the GPU that this machine lacks, to the StableHLO that it
would compile there. On the other machine, JAX compiles it with the same compiler, XLA. The kit is a
folder with a file for each program and `kit.json`, which lists their inputs and how to make them.

The name of a program is a task, a config, a shape (rows x tokens) and options:

    golden                                  losses and gradients that Google's code computed
    pretrain albert_base 32x512             the whole step: LAMB, bfloat16, dropout 0.1
    pretrain albert_base 32x512 checkpointing
    pretrain albert_base 32x512 dropout:0   without dropout, as v2 and Chinese models are trained
    classify albert_base 64x128             the whole step of fine-tuning: AdamW
    predict albert_base 1x32                probabilities of a classifier
    attention albert_base 32x512            forward and backward pass of the attention of a layer
    attention albert_base 32x512 unfused    the same as XLA compiles it
    attention albert_base 32x512 plain      the same by the operation of `model/ops.py`
    check albert_base 8x512                 what has kernels for GPUs, beside the formulas
    check albert_base 8x512 only:attention  one part of it

Where nothing else is said, the dropout rate is 0.1, also that of Hugging Face's model. "unfused"
leaves out the kernels for NVIDIA GPUs, such as fused attention; "unfused:attention" leaves out
those of a part of a layer. "plain" means that no kernel of `model/kernels/` is used; "plain:gelu"
leaves out those of an operation. "layers:3" takes a model of so many layers. All but "only" apply
to every task.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import gzip
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import check_device
import numpy as np
import tensorflow as tf
from lowering import lower, variables_of
from numpy.typing import NDArray
from tensorflow.compiler.mlir.stablehlo import stablehlo

from albert_tf import classification, files
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.engine import FineTuning
from albert_tf.model import dispatch, ops
from albert_tf.model.config import AlbertConfig, config_file
from albert_tf.model.costs import FORWARD_AND_BACKWARD, StepShape, encoder_flops, step_flops
from albert_tf.model.dispatch import Op
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training import devices, gpu_kernels

GOLDEN = "golden"
# What matters most comes first: the time on a GPU may not suffice for all.
PROGRAMS = (
    GOLDEN,
    "check albert_base 8x512 only:attention",
    "check albert_base 8x512 only:feed_forward",
    "check albert_base 8x512 only:add_and_norm",
    "check albert_base 8x512 dropout:0",
    "pretrain albert_base 32x512",
    "pretrain albert_base 32x512 dropout:0",
    "pretrain albert_large 16x512",
    "pretrain albert_base 128x128",
    "pretrain albert_base 32x512 unfused",
    "pretrain albert_base 32x512 unfused:add_and_norm",
    "pretrain albert_base 32x512 unfused:add_and_norm unfused:feed_forward",
    "pretrain albert_base 32x512 unfused:attention",
    "pretrain albert_large 16x512 dropout:0",
    "pretrain albert_base 128x128 dropout:0",
    "pretrain albert_base 32x512 dropout:0 unfused",
    "pretrain albert_base 32x512 dropout:0 unfused:add_and_norm unfused:feed_forward",
    "attention albert_base 32x512",
    "attention albert_base 32x512 unfused",
    "attention albert_base 32x512 dropout:0",
    "attention albert_base 32x512 dropout:0 unfused",
    "pretrain albert_tiny_zh 128x128",
    "pretrain albert_tiny_zh 128x128 unfused",
    "classify albert_base 64x128",
    "predict albert_base 64x128",
    "predict albert_base 1x32",
    "predict albert_tiny_zh 64x128",
    "pretrain albert_base 8x512",
    "pretrain albert_base 32x512 checkpointing",
)
GOLDEN_FOLDER = os.path.join(os.path.dirname(__file__), "..", "tests", "golden")
TASK = "rte"  # any with two labels
DROPOUT = 0.1
PREDICTIONS = 20  # masked positions per sequence, as in the commands of Google's README
LEARNING_RATE = 1.76e-3  # the paper's, for LAMB
FINE_TUNING_RATE = 2e-5
OPS = {name: value for name, value in vars(ops).items() if isinstance(value, Op)}
PARTS = gpu_kernels.PARTS

NAME = re.compile(
    r"(?P<task>\w+)(?P<rest> (?P<config>\w+) (?P<rows>\d+)x(?P<length>\d+)(?P<options>( \S+)*))?"
)
OPTION = re.compile(
    r"checkpointing|dropout:0(\.\d+)?|layers:\d+|"
    rf"plain(:({'|'.join(OPS)}))?|unfused(:({'|'.join(PARTS)}))?|only:({'|'.join(PARTS)})"
)
TENSOR = re.compile(r"tensor<([^>]*)>")
DTYPES = {
    "bf16": "bfloat16",
    "f32": "float32",
    "i1": "bool",
    "i32": "int32",
    "i64": "int64",
}

Fill = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Name:
    """What the name of a program says.

    Attributes:
        task: golden, pretrain, classify, predict, attention or check.
        config: name of a config of this package.
        rows: sequences in a batch.
        length: tokens per sequence.
        options: "checkpointing", "dropout:" and a rate, "layers:" and their number, "unfused",
            "plain", "unfused:" or "only:" and a part of a layer, or "plain:" and an operation.
    """

    task: str
    config: str = "albert_base"
    rows: int = 0
    length: int = 0
    options: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Name:
        """Returns what a name says.

        Raises:
            FileNotFoundError, ValueError: it is not the name of a program, there is no such config,
                or its sequences are shorter.
        """
        match = NAME.fullmatch(text)
        task = match["task"] if match else ""
        if not match or task not in MAKERS or (match["rest"] is None) != (task == GOLDEN):
            raise ValueError(f"{text!r} is no program: expected one like {', '.join(PROGRAMS[:2])}")
        if task == GOLDEN:
            return cls(task)
        name = cls(
            task,
            match["config"],
            int(match["rows"]),
            int(match["length"]),
            tuple(match["options"].split()),
        )
        for option in name.options:
            if not OPTION.fullmatch(option):
                expected = "checkpointing, dropout:0, layers:3, unfused, plain, plain:gelu"
                raise ValueError(
                    f"{text!r}: unknown option {option!r}: expected {expected}, or unfused: or "
                    f"only: with one of {', '.join(PARTS)}"
                )
        name.read_config().check_length(name.length)
        return name

    @property
    def dropout(self) -> float:
        """The dropout rate."""
        return float(self._value_of("dropout") or DROPOUT)

    @property
    def parts(self) -> list[str]:
        """The parts of a layer that are checked."""
        only = self._value_of("only")
        return [part for part in PARTS if only in ("", part)]

    def _value_of(self, option: str) -> str:
        """Returns what stands behind the colon of an option; "" without it."""
        values = [x.partition(":")[2] for x in self.options if x.startswith(f"{option}:")]
        return values[0] if values else ""

    def read_config(self) -> AlbertConfig:
        """Returns the config, with dropout and the number of layers."""
        rate = self.dropout
        config = AlbertConfig.from_json_file(config_file(self.config))
        changed: Any = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        if layers := self._value_of("layers"):
            changed["num_hidden_layers"] = int(layers)
        return dataclasses.replace(config, **changed)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function to lower.

    Attributes:
        function: called with `arguments`; returns the results of the program, a list.
        arguments: name → value, of which only the shape and dtype matter.
        fills: name → how the runner makes the argument.
        variables: the variables that the function reads or assigns; their values come first among
            the inputs.
        facts: entries of `kit.json`.
    """

    function: Callable[..., list[tf.Tensor]]
    arguments: dict[str, Any]
    fills: dict[str, Fill]
    variables: list[tf.Variable] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)


def fill_of_variable(variable: tf.Variable) -> Fill:
    """Returns how the initial value of a variable is made: a constant, or normal deviates."""
    value = variable.numpy()
    first = value.flat[0].item()
    if (value == first).all():
        return {"constant": first}
    return {"normal": float(value.std())}


def values_of(variable: tf.Variable) -> Fill:
    """Returns the value of a variable, to be used as it is."""
    return {"values": variable.numpy().tolist()}


def fills_of_batch(config: AlbertConfig, length: int) -> dict[str, Fill]:
    """Returns how the features of a batch are made."""
    words = {"integers": [5, config.vocab_size]}
    labels = {"integers": [0, 2]}
    return {
        "input_ids": words,
        "input_mask": {"constant": 1},
        "segment_ids": {"halves": length},
        "masked_lm_positions": {"distinct": length},
        "masked_lm_ids": words,
        "masked_lm_weights": {"constant": 1},
        "next_sentence_labels": labels,
        "label_ids": labels,
    }


def make_step_program(step: Any, batch: dict[str, NDArray[Any]], flops: float) -> Program:
    """Returns the program of a training step, whose variables are updated in place."""
    variables = variables_of(step)
    facts: dict[str, Any] = {"updated": len(variables), "flops": flops}

    def run(batch: Any) -> list[tf.Tensor]:
        facts["loss"] = 0  # the first field of the result
        outputs: list[tf.Tensor] = tf.nest.flatten(
            step._run(batch, tf.constant(True), tf.constant(False))
        )
        return outputs

    fills = fills_of_batch(step.model.config, batch["input_ids"].shape[1])
    return Program(run, batch, fills, variables, facts)


def make_pretraining(name: Name) -> Program:
    """Returns a pre-training step."""
    devices.apply_precision("bfloat16")
    config = name.read_config()
    shape = StepShape(name.rows, name.length, PREDICTIONS)
    batch = check_device.random_batch(name.rows, name.length, PREDICTIONS, config.vocab_size)
    options: dict[str, Any] = {
        "optimizer": "lamb",
        "learning_rate": LEARNING_RATE,
        "recompute": "checkpointing" in name.options,
    }
    step, _ = check_device.make_step(tf.distribute.get_strategy(), config, batch, **options)
    return make_step_program(step, batch, step_flops(config, shape))


def make_classifier(config: AlbertConfig) -> Classifier:
    """Returns a classification task."""
    settings = classification.Settings(task_name=TASK, data_dir="unused", output_dir="unused")
    no_tokenizer: Any = None  # the batches exist already
    return Classifier(settings, config, no_tokenizer, (TASKS[TASK], {}))


def classification_batch(name: Name) -> dict[str, NDArray[Any]]:
    """Returns a batch of classification, whose values do not matter."""
    names = ("input_ids", "input_mask", "segment_ids")
    batch = {feature: np.zeros((name.rows, name.length), np.int32) for feature in names}
    return batch | {"label_ids": np.zeros(name.rows, np.int32)}


def make_classification(name: Name) -> Program:
    """Returns a step of fine-tuning."""
    devices.apply_precision("bfloat16")
    config = name.read_config()
    strategy = tf.distribute.get_strategy()
    task = FineTuning(make_classifier(config), {}, strategy)
    step = check_device.make_task_step(task, strategy, "adamw", FINE_TUNING_RATE)
    flops = FORWARD_AND_BACKWARD * encoder_flops(config, StepShape(name.rows, name.length, 0))
    return make_step_program(step, classification_batch(name), flops)


def make_prediction(name: Name) -> Program:
    """Returns the predictions of a classifier."""
    devices.apply_precision("bfloat16")
    config = name.read_config()
    task = make_classifier(config)
    model = task.build_model()
    batch = classification_batch(name)
    del batch["label_ids"]

    def predict(batch: Any) -> list[tf.Tensor]:
        return [task.predictions(model(batch, training=False))["probabilities"]]

    facts = {"flops": encoder_flops(config, StepShape(name.rows, name.length, 0))}
    fills = fills_of_batch(config, name.length)
    return Program(predict, batch, fills, list(model.variables), facts)


def make_attention_inputs(name: Name) -> tuple[dict[str, Any], dict[str, Fill]]:
    """Returns the inputs of a layer's attention and the gradient of its result, and their fills."""
    config = name.read_config()
    heads, width = config.num_attention_heads, config.hidden_size
    shape = name.rows, heads, name.length, width // heads
    half = tf.bfloat16.as_numpy_dtype
    arrays = {key: np.zeros(shape, half) for key in ("query", "key", "value")}
    arrays["gradient"] = np.zeros((name.rows, name.length, width), half)
    fills: dict[str, Fill] = {key: {"normal": 1.0} for key in arrays}
    others = {
        "input_mask": np.ones((name.rows, name.length), np.int32),
        "seed": np.zeros(2, np.int32),
    }
    fills |= {"input_mask": {"constant": 1}, "seed": {"integers": [0, 1000]}}
    return arrays | others, fills


def attend(inputs: dict[str, tf.Tensor], rate: float) -> list[tf.Tensor]:
    """Returns the context of a layer's attention, and the gradients of query, key and value."""
    sources = [inputs[key] for key in ("query", "key", "value")]
    with tf.GradientTape() as tape:
        tape.watch(sources)
        query, key, value = sources
        context = ops.attention(query, key, value, inputs["input_mask"], rate, inputs["seed"])
    return [context, *tape.gradient(context, sources, inputs["gradient"])]


def make_attention(name: Name) -> Program:
    """Returns the forward and the backward pass of the attention of a layer."""
    arguments, fills = make_attention_inputs(name)

    def run(inputs: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        return attend(inputs, name.dropout)

    matmul = 2.0 * arguments["query"].size * name.length
    return Program(run, arguments, fills, facts={"flops": 2 * FORWARD_AND_BACKWARD * matmul})


def make_check(name: Name) -> Program:
    """Returns the relative differences of the kernels for GPUs from the formulas in float32, [n].

    There are n parts of a layer. The last third of every other row is padding.
    """
    arguments, fills = make_attention_inputs(name)
    arguments["gradient"] = arguments["query"]

    def check(inputs: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        tensors = [inputs[key] for key in ("query", "key", "value", "gradient")]
        is_odd = tf.range(name.rows)[:, None] % 2 == 1  # [B, 1]
        is_padding = is_odd & (tf.range(name.length) >= name.length * 2 // 3)  # [B, S]
        others = tf.where(is_padding, 0, inputs["input_mask"]), name.dropout, inputs["seed"]
        exact = [tf.cast(x, tf.float32) for x in tensors]
        differences = []
        for part in name.parts:
            with dispatch.plain():
                expected = gpu_kernels.results(part, exact, *others)
            ours = gpu_kernels.results(part, tensors, *others)
            pairs = [(tf.cast(x, tf.float32), y) for x, y in zip(ours, expected, strict=True)]
            difference = tf.linalg.global_norm([x - y for x, y in pairs])
            differences.append(difference / tf.linalg.global_norm(expected))
        return [tf.stack(differences)]

    return Program(check, arguments, fills, facts={"differences": name.parts})


def make_golden(name: Name) -> Program:
    """Returns loss and gradients of a small model in float32, beside those of Google's code."""
    del name
    devices.apply_precision("float32")
    config = AlbertConfig.from_json_file(os.path.join(GOLDEN_FOLDER, "encoder_shared.json"))
    model = AlbertForPretraining(config)
    with np.load(os.path.join(GOLDEN_FOLDER, "encoder_shared.npz")) as golden:
        arrays = {key: golden[key] for key in golden.files}
    for variable in model.variables:
        variable.assign(arrays[f"variable/{variable_name(variable)}"])
    prefix = "input/"
    batch = {key.removeprefix(prefix): x for key, x in arrays.items() if key.startswith(prefix)}
    task = PretrainingTask(config, *(batch[x].shape[1] for x in ("input_ids", "masked_lm_ids")))

    def loss_and_gradients(batch: Any) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss, _ = task.loss(model(batch), batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        return [loss, *(tf.convert_to_tensor(gradient) for gradient in gradients)]

    gradients = [arrays[f"gradient/{variable_name(x)}"] for x in model.trainable_variables]
    expected = [arrays["output/total_loss"], *gradients]
    fills = {key: {"values": value.tolist()} for key, value in batch.items()}
    facts = {"expected": [value.tolist() for value in expected]}
    return Program(loss_and_gradients, batch, fills, list(model.variables), facts)


MAKERS: dict[str, Callable[[Name], Program]] = {
    GOLDEN: make_golden,
    "pretrain": make_pretraining,
    "classify": make_classification,
    "predict": make_prediction,
    "attention": make_attention,
    "check": make_check,
}
PEER_TASKS = ("pretrain", "classify", "predict")


@contextlib.contextmanager
def without_kernels(options: tuple[str, ...]) -> Iterator[None]:
    """Context manager in which operations run without kernels, as the options of a name ask for."""
    plain = {option.partition(":")[2] for option in options if option.startswith("plain")}
    unfused = {option.partition(":")[2] for option in options if option.startswith("unfused")}
    fused = () if "" in unfused else PARTS.keys() - unfused
    for_gpu = functools.partial(dispatch.for_gpu, {name for part in fused for name in PARTS[part]})
    with contextlib.ExitStack() as stack:
        for name in OPS if "" in plain else plain:
            stack.enter_context(mock.patch.dict(OPS[name].kernels, clear=True))
        stack.enter_context(mock.patch.object(dispatch, "for_gpu", for_gpu))
        yield


def lower_program(name: Name, platform: str, stage: str) -> tuple[Program, Any]:
    """Returns a program, and it as lowered to a stage; see `lower`."""
    program = MAKERS[name.task](name)
    is_step = "updated" in program.facts
    with without_kernels(name.options):
        sources = program.function, program.variables, platform, program.arguments
        return program, lower(*sources, stage=stage, returns_values=is_step)


def write_program(text: str, platform: str, folder: str) -> dict[str, Any]:
    """Lowers the program with the given name and writes it; returns its entry of `kit.json`."""
    name = Name.parse(text)
    program, module = lower_program(name, platform, "stablehlo")
    is_golden = name.task == GOLDEN
    if is_golden:  # GPUs round the operands of DEFAULT to TF32
        module = module.replace("precision = [DEFAULT, DEFAULT]", "precision = [HIGHEST, HIGHEST]")
    file = f"{text.replace(' ', '_').replace(':', '_')}.mlir.gz"
    write_module(module, os.path.join(folder, file))
    inputs = describe_inputs(program, values_of if is_golden else fill_of_variable)
    entry: dict[str, Any] = {"name": text, "task": name.task, "options": name.options, "file": file}
    entry |= {"inputs": inputs, "results": results_of(module)} | program.facts
    if name.task in PEER_TASKS:
        entry |= {"rows": name.rows, "length": name.length, "predictions": PREDICTIONS}
        entry["config"] = name.read_config().to_dict()
    return entry


def write_module(module: str, path: str) -> None:
    """Writes a program, the text of a module of StableHLO, in a form that other releases read."""
    portable = stablehlo.serialize_portable_artifact_str(module, stablehlo.get_minimum_version())
    with files.write_atomically(path, "wb") as stream:
        stream.write(gzip.compress(portable, mtime=0))


def describe_inputs(
    program: Program, fill_of: Callable[[tf.Variable], Fill]
) -> list[dict[str, Any]]:
    """Returns the inputs of a program in `kit.json`: variables, then arguments."""
    inputs = [describe_input(x.shape, x.dtype, fill_of(x)) for x in program.variables]
    for key in sorted(program.arguments):  # the order of `tf.nest`
        value = tf.convert_to_tensor(program.arguments[key])
        inputs.append(describe_input(value.shape, value.dtype, program.fills.get(key, {})))
    return inputs


def results_of(module: str) -> list[dict[str, Any]]:
    """Returns the shapes and dtypes of the results of a program, the text of a module."""
    begin = module.index("@main(")
    line = module[begin : module.index("\n", begin)]
    results = []
    for text in TENSOR.findall(line.rpartition(" -> ")[2]):
        *shape, dtype = text.split("x")
        results.append({"shape": [int(size) for size in shape], "dtype": DTYPES[dtype]})
    return results


def describe_input(shape: tf.TensorShape, dtype: tf.DType, fill: Fill) -> dict[str, Any]:
    """Returns the entry of an input in `kit.json`."""
    return {"shape": shape.as_list(), "dtype": dtype.name, **fill}


def main() -> None:
    """Writes the kit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder to write; it is made if it does not exist")
    parser.add_argument("--programs", default=";".join(PROGRAMS), help="names, with semicolons")
    parser.add_argument("--platform", default="GPU", choices=("GPU", "CPU"), help="target")
    args = parser.parse_args()
    names = [text.strip() for text in args.programs.split(";")]
    try:
        for text in names:
            Name.parse(text)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    os.makedirs(args.folder, exist_ok=True)
    begin = time.perf_counter()
    entries = []
    for text in names:
        entries.append(write_program(text, args.platform, args.folder))
        print(f"{time.perf_counter() - begin:5.0f} s  {text}", flush=True)
    with files.write_atomically(os.path.join(args.folder, "kit.json")) as stream:
        json.dump({"platform": args.platform, "programs": entries}, stream)
    written = [entry["file"] for entry in entries] + ["kit.json"]
    size = sum(os.path.getsize(os.path.join(args.folder, file)) for file in written)
    print(f"{args.folder}: {len(entries)} programs, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
