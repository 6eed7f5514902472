"""The training steps hold nothing that a GPU or TPU cannot run: XLA compiles them whole.

They have static shapes, no float64, and neither Python nor the host in the middle. These are checks
on the graph, and on the HLO programs that TensorFlow lowers it to for CPUs and for GPUs, which
`test_compiled_programs.py` compiles.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from lowering import lower_step

from albert_tf import classification, race, squad, token_classification
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.squad.task import QuestionAnswering
from albert_tf.finetuning.token_classification.tags import Tags
from albert_tf.finetuning.token_classification.task import TokenClassifier
from albert_tf.model import config
from albert_tf.training.step import TrainStep
from tests.conftest import TINY_SHAPE
from tests.training.distributed_steps import batch_of, make_step, pretraining_task

CONFIG = config.AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1})
FOLDERS = {"data_dir": "data", "output_dir": "out"}
XLA = {"jit_compile": True}
NO_TOKENIZER = None  # the batches exist already
ROWS, LENGTH, OPTIONS = 6, 11, 3
# Instructions of an HLO program by which a device waits for the host.
HLO_HOST = {"custom-call", "infeed", "outfeed", "send", "recv", "send-done", "recv-done"}
HLO_ENTRY = re.compile(r"^ENTRY .*$", re.MULTILINE)
HLO_LINE = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+ = (.*?) ([a-z-]+)\(", re.MULTILINE)


def hlo_problems(text):
    """Returns a line for every kind of instruction of an HLO program that is out of place."""
    found = set()
    for shape, instruction in HLO_LINE.findall(text):
        if instruction in HLO_HOST:
            found.add(f"{instruction} waits for the host")
        if "<=" in shape:  # as in f32[<=5]
            found.add(f"{instruction} returns the dynamic shape {shape}")
        if re.search(r"\b(f64|c64|c128)\[", shape):
            found.add(f"{instruction} computes in float64")
    return sorted(found)


def value_problems(text, num_inputs):
    """Returns a line if a program holds the values of inputs or variables, of which it has copies.

    It would then be compiled again for every batch, or whenever a weight changes.
    """
    found = re.findall(r' constant\(.* op_type="ReadVariableOp" op_name="([^"]*)"', text)
    entry = HLO_ENTRY.search(text)[0]
    missing = num_inputs - len(re.findall(r"\barg\d+", entry))
    lines = [f"{found[0]} and {len(found) - 1} others are constants"] if found else []
    return lines + ([f"the values of {missing} inputs are constants"] if missing else [])


def problems_of(step, batch):
    """Returns what keeps a training step, with `jit_compile`, from running on an accelerator.

    Compiles its program for this CPU as well, which fails with an error.
    """
    batch = {name: tf.constant(value) for name, value in batch.items()}
    arguments = batch, tf.constant(True), tf.constant(False)
    concrete = step.function.get_concrete_function(*arguments)
    compiler = step.function.experimental_get_compiler_ir(*arguments)
    text = compiler(stage="hlo")
    assert HLO_LINE.search(text), text[:200]
    compiler(stage="optimized_hlo")
    found = hlo_problems(text) + value_problems(text, len(concrete.inputs))
    return found or hlo_problems(lower_step(step, batch, "GPU", stage="hlo"))


def pretraining_programs():
    """Yields a name, the options of `make_step`, and the config."""
    yield "lamb", {"optimizer": "lamb"}, CONFIG
    yield "adamw bfloat16", {"optimizer": "adamw", "precision_name": "bfloat16"}, CONFIG
    yield "accumulation", {"micro_batches": 3, "precision_name": "bfloat16"}, CONFIG
    yield "checkpointing", {"recompute": True, "precision_name": "bfloat16"}, CONFIG
    both = {"optimizer": "adamw", "micro_batches": 3, "recompute": True}
    yield "accumulation and checkpointing", both, CONFIG
    yield "clipping per replica", {"optimizer": "adamw", "clip_per_replica": True}, CONFIG
    zh = dataclasses.replace(CONFIG, layout="albert_zh", ln_type="preln")
    yield "albert_zh", {"optimizer": "lamb_albert_zh", "precision_name": "bfloat16"}, zh
    unshared = dataclasses.replace(CONFIG, share="none", num_hidden_layers=2)
    yield "share none", {"precision_name": "bfloat16"}, unshared


PRETRAINING = {name: case for name, *case in pretraining_programs()}
IN_FLOAT16 = {"precision_name": "float16", "micro_batches": 3, "recompute": True}
LOWERED = PRETRAINING | {"float16": (IN_FLOAT16, CONFIG)}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_every_pretraining_step_compiles_for_accelerators(name):
    options, made_of = LOWERED[name]
    step = make_step(pretraining_task(made_of), **XLA, **options)
    assert problems_of(step, batch_of(0)) == []


def sequences(*shape):
    """Returns the inputs of the encoder, int32 [*shape, S]."""
    shape = (*shape, LENGTH)
    return {
        "input_ids": np.full(shape, 7, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "segment_ids": np.zeros(shape, np.int32),
    }


def classifier(name, **settings):
    settings = classification.Settings(task_name=name, **FOLDERS, **settings)
    return Classifier(settings, CONFIG, NO_TOKENIZER, (TASKS[name], {}))


def fine_tuning_cases():
    """Yields a name, a task, and a batch of it."""
    label_ids = np.zeros(ROWS, np.int32)
    batch = sequences(ROWS) | {"label_ids": label_ids}
    yield "classification", classifier("rte"), batch
    yield "mean", classifier("rte", use_pooled_output=False), batch
    yield "regression", classifier("sts-b"), batch | {"label_ids": label_ids.astype(np.float32)}
    choices = sequences(ROWS, OPTIONS) | {"label_ids": label_ids}
    yield "race", MultipleChoice(race.Settings(**FOLDERS), CONFIG, NO_TOKENIZER), choices
    labels = token_classification.Settings(**FOLDERS)
    tags = Tags(("B-LOC", "I-LOC", "O"))
    per_token = batch | {"label_ids": np.zeros((ROWS, LENGTH), np.int32)}
    yield "tokens", TokenClassifier(labels, CONFIG, NO_TOKENIZER, (tags, {})), per_token
    spans = sequences(ROWS) | {
        name: np.ones(ROWS, np.int32)
        for name in ("start_positions", "end_positions", "is_impossible")
    }
    spans |= {"p_mask": np.zeros((ROWS, LENGTH), np.int32)}
    settings = squad.Settings(output_dir="out", start_n_top=3, end_n_top=2)
    for version_2 in (False, True):
        task = QuestionAnswering(settings, CONFIG, NO_TOKENIZER, {}, version_2)
        yield f"squad {1 + version_2}", task, spans


FINE_TUNING = {
    name: (FineTuning(task, {}, tf.distribute.get_strategy()), batch)
    for name, task, batch in fine_tuning_cases()
}


@pytest.mark.slow
def test_the_fine_tuning_step_suits_accelerators_for_batches_of_any_length():
    """It is traced once for all lengths; XLA still gets the shape of each batch."""
    task, batch = FINE_TUNING["squad 2"]
    step = make_step(task, optimizer="adamw", **XLA)
    specs = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
    step = TrainStep(step.model, task, step.optimizer, step.options, batch_signature=specs)
    assert problems_of(step, batch) == []


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "precision_name"), [(1, "float32"), (2, "bfloat16")])
@pytest.mark.parametrize("name", FINE_TUNING)
def test_every_fine_tuning_step_compiles_for_accelerators(name, parts, precision_name):
    task, batch = FINE_TUNING[name]
    options = {"precision_name": precision_name, "micro_batches": parts}
    step = make_step(task, optimizer="adamw", **XLA, **options)
    assert problems_of(step, batch) == []
