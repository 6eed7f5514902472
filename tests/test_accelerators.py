"""The training steps hold nothing that a GPU or TPU cannot run: XLA compiles them whole.

They have static shapes, no float64, and neither Python nor the host in the middle. These are checks
on the graph, and on the HLO programs that TensorFlow lowers it to for CPUs and for GPUs, which
`test_compiled_programs.py` compiles.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from lowering import lower, lower_step

from albert_tf import classification, config, optimization, race, squad, token_classification
from albert_tf.classification.task import Classifier
from albert_tf.classification.tasks import TASKS
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.race.task import MultipleChoice
from albert_tf.squad.task import QuestionAnswering
from albert_tf.token_classification.tags import Tags
from albert_tf.token_classification.task import TokenClassifier
from albert_tf.training import precision
from albert_tf.training.step import StepOptions, TrainStep
from tests.conftest import ROOT, TINY_SHAPE
from tests.training.distributed_steps import batch_of
from tests.training.xla_programs import compile_problems, hlo_problems

CONFIG = config.AlbertConfig(**TINY_SHAPE | {"num_hidden_layers": 1, "num_hidden_groups": 1})
FOLDERS = {"data_dir": "data", "output_dir": "out"}
NO_TOKENIZER = None  # the batches exist already
ROWS, LENGTH, OPTIONS = 6, 11, 3


def make_step(task, optimizer="lamb", precision_name="float32", recompute=False, **options):
    """Returns the compiled training step of a task."""
    precision.apply(precision_name)
    tf_keras.utils.set_random_seed(3)
    model = task.build_model()
    model.encoder.recompute = recompute
    schedule = optimization.WarmUpPolynomialDecay(0.01, 40, 4)
    made = optimization.create_optimizer(optimizer, schedule)
    loss_scale = precision.LossScale() if precision_name == "float16" else None
    options = StepOptions(jit_compile=True, **options)
    return TrainStep(model, task, made, options, loss_scale=loss_scale)


def problems_of(step, batch, compiles=False):
    """Returns what keeps a training step from running on an accelerator."""
    batch = {name: tf.constant(value) for name, value in batch.items()}
    flags = tf.constant(True), tf.constant(False)
    if found := compile_problems(step.function, batch, *flags, compiles=compiles):
        return found
    return hlo_problems(lower_step(step, batch, "GPU", stage="hlo"))


def pretraining_task(made_of=CONFIG):
    batch = batch_of(0)
    return PretrainingTask(made_of, LENGTH, batch["masked_lm_ids"].shape[1])


PRETRAINING = [
    {"optimizer": "lamb"},
    {"optimizer": "adamw", "precision_name": "bfloat16", "micro_batches": 3, "recompute": True},
]
MORE_PRETRAINING = [
    {"optimizer": optimizer, "precision_name": name, "micro_batches": parts, "recompute": recompute}
    for optimizer in ("lamb", "adamw")
    for name in ("float32", "bfloat16", "float16")
    for parts in (1, 3)
    for recompute in (False, True)
]


@pytest.mark.ci
@pytest.mark.parametrize("case", PRETRAINING, ids=str)
def test_the_pretraining_step_suits_accelerators(case):
    assert problems_of(make_step(pretraining_task(), **case), batch_of(0)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", MORE_PRETRAINING, ids=str)
def test_every_pretraining_step_compiles_for_accelerators(case):
    assert problems_of(make_step(pretraining_task(), **case), batch_of(0), compiles=True) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["albert_base", "albert_tiny_zh"])
def test_the_pretraining_step_of_a_released_architecture_compiles_for_accelerators(name):
    made_of = config.AlbertConfig.from_json_file(str(ROOT / "configs" / f"{name}.json"))
    step = make_step(pretraining_task(made_of), "lamb", "bfloat16", micro_batches=2)
    assert problems_of(step, batch_of(0), compiles=True) == []


@pytest.mark.slow
def test_clipping_per_replica_suits_accelerators():
    step = make_step(pretraining_task(), "adamw", clip_per_replica=True)
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
    return Classifier(TASKS[name], settings, CONFIG, NO_TOKENIZER)


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
    tags = Tags(("B-LOC", "I-LOC", "O"), "iob2")
    per_token = batch | {"label_ids": np.zeros((ROWS, LENGTH), np.int32)}
    yield "tokens", TokenClassifier(tags, labels, CONFIG, NO_TOKENIZER), per_token
    spans = sequences(ROWS) | {
        name: np.ones(ROWS, np.int32)
        for name in ("start_positions", "end_positions", "is_impossible")
    }
    spans |= {"p_mask": np.zeros((ROWS, LENGTH), np.int32), "unique_ids": np.arange(ROWS)}
    settings = squad.Settings(output_dir="out", start_n_top=3, end_n_top=2)
    for version_2 in (False, True):
        task = QuestionAnswering(settings, CONFIG, NO_TOKENIZER, version_2, {})
        yield f"squad {1 + version_2}", task, spans


FINE_TUNING = {name: case for name, *case in fine_tuning_cases()}


@pytest.mark.ci
def test_the_fine_tuning_step_suits_accelerators_for_batches_of_any_length():
    """It is traced once for all lengths; XLA still gets the shape of each batch."""
    task, batch = FINE_TUNING["squad 2"]
    step = make_step(task, "adamw")
    specs = {name: tf.TensorSpec([None] * value.ndim, value.dtype) for name, value in batch.items()}
    step = TrainStep(step.model, task, step.optimizer, step.options, batch_signature=specs)
    assert problems_of(step, batch) == []


@pytest.mark.slow
@pytest.mark.parametrize("precision_name", ["float32", "bfloat16"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", FINE_TUNING)
def test_every_fine_tuning_step_compiles_for_accelerators(name, parts, precision_name):
    task, batch = FINE_TUNING[name]
    step = make_step(task, "adamw", precision_name, micro_batches=parts)
    assert problems_of(step, batch, compiles=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FINE_TUNING)
def test_prediction_compiles_for_accelerators(name):
    task, batch = FINE_TUNING[name]
    precision.apply("bfloat16")
    model = task.build_model()
    predict = tf.function(
        lambda batch: task.predictions(model(batch, training=False)), jit_compile=True
    )
    inputs = {name: tf.constant(value) for name, value in batch.items()}
    assert compile_problems(predict, inputs, compiles=True) == []
    text = lower(predict.python_function, model.variables, "GPU", inputs, stage="hlo")
    assert hlo_problems(text) == []


def compiled(function):
    return tf.function(function, jit_compile=True)


def python_in_the_middle(x):
    return tf.py_function(lambda y: y, [x], tf.float32)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (python_in_the_middle, "EagerPyFunc .* runs on the host"),
        (lambda x: tf.numpy_function(np.copy, [x], tf.float32), "PyFunc .* runs on the host"),
        (lambda x: [tf.print(x), x][1], "PrintV2 .* runs on the host"),
        (lambda x: tf.cast(tf.cast(x, tf.float64) + 1, tf.float32), "computes in float64"),
        (lambda x: tf.where(x > 0), "Where .* any shape"),
        (lambda x: tf.boolean_mask(x, x > 0), "Where .* any shape"),
    ],
    ids=["py_function", "numpy_function", "print", "float64", "where", "boolean_mask"],
)
def test_what_does_not_suit_accelerators_is_found(function, problem):
    found = compile_problems(compiled(function), tf.ones(3))
    assert any(tf.strings.regex_full_match(line, f".*{problem}.*") for line in found), found


@pytest.mark.ci
def test_a_shape_that_depends_on_a_value_is_found():
    found = compile_problems(compiled(lambda x: x[: tf.cast(x[0], tf.int32)]), tf.ones(4))
    assert found == ["the values of 1 inputs are constants"]


@pytest.mark.ci
def test_inputs_that_are_constants_are_found():
    """As if a function were called whose gradient receives a permutation from it."""
    weight = tf.Variable(tf.ones((2, 3)))

    @tf.function(autograph=False)
    def transposed(x, weight):
        return tf.transpose(x * weight, tf.constant((1, 0)))

    @compiled
    def gradient(x):
        with tf.GradientTape() as tape:
            y = tf.reduce_sum(transposed(x, tf.convert_to_tensor(weight)) ** 2)
        return tape.gradient(y, weight)

    assert compile_problems(gradient, tf.ones((2, 3))) == ["the values of 1 inputs are constants"]
