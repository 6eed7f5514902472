"""The programs of all steps: the compilers of TPUs and GPUs take them, and they compute the same.

`make test-tpu` runs these tests in an environment with `tensorflow-tpu`, which lowers the steps to
the programs that a TPU runs, and `make test-gpu` in the ordinary one, which lowers them for a GPU.
JAX, in an environment of its own, calls the compilers. No TPU or GPU is used.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import subprocess
from unittest import mock

import check_device
import make_gpu_kit
import numpy as np
import pytest
import tensorflow as tf
from lowering import lower, lower_step, variables_of

from albert_tf.model import config, ops
from albert_tf.model.kernels import cudnn_attention
from albert_tf.model.kernels.triton import attention as triton_attention
from albert_tf.model.kernels.triton import kernel as triton_kernel
from albert_tf.model.kernels.triton import norm as triton_norm
from albert_tf.training import devices
from albert_tf.training.step import StepOptions, TrainStep
from tests.conftest import ROOT
from tests.test_accelerators import CONFIG, FINE_TUNING, PRETRAINING
from tests.training.distributed_steps import batch_of, make_step, pretraining_task

COMPILER = os.environ.get("ALBERT_COMPILER", "")  # the Python with JAX and its compilers


def find_platform():
    """Returns what this environment's TensorFlow lowers to."""
    installed = {found.metadata["Name"].lower() for found in importlib.metadata.distributions()}
    return "TPU" if installed & {"tensorflow-tpu", "tensorflow_tpu"} else "GPU"


def why_skipped():
    if PLATFORM == "TPU" and importlib.util.find_spec("libtpu"):
        return "tensorflow-tpu looks for a TPU where libtpu is: make test-tpu"
    return "" if COMPILER else "needs ALBERT_COMPILER: make test-tpu or make test-gpu"


PLATFORM = find_platform()


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(why_skipped()), reason=why_skipped()),
]
TOPOLOGIES = {"TPU": ("v4:2x2x1", "v5e:2x2", "v6e:2x2"), "GPU": ("a100", "h100")}[PLATFORM]
REPLICAS = 8
ROWS, LENGTH, HEADS = 3, 128, 2  # of a layer's attention
needs_gpu_compiler = pytest.mark.skipif(PLATFORM != "GPU", reason="calls what GPUs run")


class Compiler:
    """The process that compiles and runs programs."""

    def __init__(self, folder):
        self._folder = folder
        program = ROOT / "benchmarks" / "worker_compile.py"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # In a folder of its own: libtpu writes files into the current one.
        self._process = subprocess.Popen([COMPILER, program], text=True, cwd=folder, **pipes)

    def _ask(self, program, **order):
        path = self._folder / "program.hlo"
        path.write_bytes(program)
        self._process.stdin.write(json.dumps({"program": str(path), **order}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def compile(self, program, topology, replicas=1):
        return self._ask(program, topology=topology, replicas=replicas)

    def run(self, program, *inputs):
        """Returns the results of a program on the CPU."""
        paths = [str(self._folder / name) for name in ("in.npz", "out.npz")]
        np.savez(paths[0], **{str(i): value for i, value in enumerate(tf.nest.flatten(inputs))})
        self._ask(program, inputs=paths[0], outputs=paths[1])
        with np.load(paths[1]) as arrays:
            return [arrays[str(i)] for i in range(len(arrays.files))]

    def close(self):
        with self._process:  # closes its pipes, and waits for it
            pass


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    made = Compiler(tmp_path_factory.mktemp("compiler"))
    yield made
    made.close()


def check(compiled, precision_name):
    """Checks that a program suits a device, and computes its matmuls in the precision asked for."""
    assert compiled["problems"] == []
    flops = compiled["matmul_flops"]
    dtype = "bf16" if precision_name == "bfloat16" else "f32"
    assert flops[dtype] == sum(flops.values()) > 0


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("name", PRETRAINING)
def test_the_pretraining_step_compiles(compiler, name, topology):
    options, made_of = PRETRAINING[name]
    step = make_step(pretraining_task(made_of), **options)
    program = lower_step(step, batch_of(0), PLATFORM)
    check(compiler.compile(program, topology), options.get("precision_name"))


@pytest.mark.parametrize("name", FINE_TUNING)
def test_fine_tuning_evaluation_and_prediction_compile(compiler, name):
    task, batch = FINE_TUNING[name]
    step = make_step(task, optimizer="adamw", precision_name="bfloat16")

    def predict(batch):
        outputs = step.model(batch, training=False)
        return task.task.predictions(outputs), task.loss(outputs, batch)

    prediction = lower(predict, step.model.variables, PLATFORM, batch)
    for program in (lower_step(step, batch, PLATFORM), prediction):
        for topology in TOPOLOGIES:
            check(compiler.compile(program, topology), "bfloat16")


class ReplicaStep(TrainStep):
    """The step of one of several replicas, with the operation that sums over replicas."""

    def _all_reduce(self, values):
        groups = [list(range(REPLICAS))]
        return tf.nest.map_structure(
            lambda x: tf.raw_ops.CrossReplicaSum(input=x, group_assignment=groups), values
        )


@pytest.mark.skipif(PLATFORM == "GPU", reason="TensorFlow lowers the sum over replicas for TPUs")
@pytest.mark.parametrize("topology", ["v4:2x2x2", "v5e:2x4", "v6e:2x4"])
def test_replicas_sum_each_gradient_once(compiler, topology):
    step = make_step(pretraining_task(CONFIG))
    replica = ReplicaStep(step.model, step.task, step.optimizer, StepOptions())
    flags = np.array(True), np.array(False)
    program = lower(replica._replica_step, variables_of(step), PLATFORM, batch_of(0), *flags)
    compiled = compiler.compile(program, topology, REPLICAS)
    check(compiled, "float32")
    weights = 4 * sum(variable.shape.num_elements() for variable in step.variables)
    assert set(compiled["collectives"]) <= {"all-reduce", "reduce-scatter", "all-gather"}
    total = sum(size for _, size in compiled["collectives"].values())
    # The gradients, once, and the sums of the metrics and of the loss' weights.
    assert weights <= total <= 1.05 * weights + 1000


# Topology → dropout rate → 1.1 times what the compilers of libtpu 0.0.42.1 and jax 0.10.2 said.
BOUNDS = {
    "v4:2x2x1": {0.1: (6.0e9, 0.26e9)},
    "h100": {0.1: (2.95e9, 0.27e9), 0.0: (2.87e9, 0.27e9)},
}


@pytest.mark.parametrize("dropout", [0.1, 0.0])
def test_a_full_size_step_accesses_few_bytes(compiler, dropout):
    """3 of the 12 layers of base."""
    (topology,) = BOUNDS.keys() & set(TOPOLOGIES)
    if dropout not in BOUNDS[topology]:
        pytest.skip("no kernel for this device is for it alone")
    made_of = check_device.read_config("albert_base", dropout)
    made_of = dataclasses.replace(made_of, num_hidden_layers=3)
    devices.apply_precision("bfloat16")
    batch = check_device.random_batch(8, 512, 20, made_of.vocab_size)
    step, batch = check_device.make_step(
        tf.distribute.get_strategy(), made_of, batch, optimizer="lamb"
    )
    compiled = compiler.compile(lower_step(step, batch, PLATFORM), topology)
    check(compiled, "bfloat16")
    max_bytes, max_temporary_bytes = BOUNDS[topology][dropout]
    assert compiled["bytes_accessed"] <= max_bytes
    assert compiled["temporary_bytes"] <= max_temporary_bytes
    assert (0 < compiled["hbm_bytes"] < compiled["bytes_accessed"]) == (PLATFORM == "TPU")


def attention_of(x, kernel, mask, rate, seed):
    """Returns the attention of a layer, and the gradients of its input and kernels."""
    bias = tf.zeros(x.shape[-1])
    with tf.GradientTape() as tape:
        tape.watch((x, kernel))
        heads = ops.project_heads(x, x, [kernel * 1, kernel * 2, kernel * 3], [bias] * 3, HEADS)
        context = ops.attention(*heads, mask, rate, seed)
    return context, tape.gradient(context, (x, kernel))


def fused_attention(rate=0.0, dtype=tf.bfloat16, size=64):
    half = dtype.as_numpy_dtype
    x, kernel = np.zeros((ROWS, LENGTH, size * HEADS), half), np.zeros((size * HEADS,) * 2, half)
    mask, seed = np.ones((ROWS, LENGTH), np.int32), np.array((5, 7), np.int32)
    return lower(
        lambda *args: attention_of(*args[:3], rate, args[3]), [], PLATFORM, *(x, kernel, mask, seed)
    )


@needs_gpu_compiler
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_attention_without_dropout_is_cudnns_and_copies_nothing(compiler, topology, dtype):
    compiled = compiler.compile(fused_attention(0.0, dtype), topology)
    of_cudnn = {name: count for name, count in compiled["calls"].items() if "cudnn" in name}
    kind = "__cudnn$fmhaScaleBiasSoftmax"
    assert of_cudnn == {kind: 1, f"{kind}Backward": 1}
    assert [x for x in compiled["transposes"] if x.count(",") > 1] == []  # of heads


@needs_gpu_compiler
@pytest.mark.parametrize("size", triton_attention.HEAD_SIZES)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_attention_with_dropout_is_tritons_and_copies_nothing(compiler, topology, size):
    compiled = compiler.compile(fused_attention(0.1, size=size), topology)
    assert compiled["calls"]["__gpu$xla.gpu.triton"] == 3
    assert [x for x in compiled["transposes"] if x.count(",") > 1] == []  # of heads


@needs_gpu_compiler
@pytest.mark.parametrize("size", [312, *triton_norm.SIZES])
@pytest.mark.parametrize("rate", [0.1, 0.0])
def test_sum_and_norm_read_and_write_each_tensor_once(compiler, size, rate):
    """Two operands and a result; then three operands and two gradients, one without dropout.

    As results of a program, that one is copied, so that there are two.
    """
    rows = 640
    x, gamma = np.zeros((rows, size), tf.bfloat16.as_numpy_dtype), np.ones(size, np.float32)

    def both_passes(x, residual, dy, gamma, seed):
        sources = [x, residual, gamma]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = ops.add_and_norm(x, residual, gamma, gamma, rate, seed)
        return y, tape.gradient(y, sources, dy)

    program = lower(both_passes, [], PLATFORM, x, x, x, gamma, np.array((5, 7), np.int32))
    for topology in TOPOLOGIES:
        compiled = compiler.compile(program, topology)
        assert compiled["calls"] == {"__gpu$xla.gpu.triton": 2}
        passes = 8 if rate else 9
        assert compiled["bytes_accessed"] < 1.25 * passes * x.nbytes  # sums of 32 rows in float32


@needs_gpu_compiler
def test_the_first_matmul_of_a_feed_forward_network_computes_gelu(compiler):
    """The gradients of GELU and of the bias are one pass, of three tensors [N, I]."""
    rows, size = 640, 512
    half = tf.bfloat16.as_numpy_dtype
    shapes = (rows, 64), (64, size), (size, 64)
    x, kernel, output_kernel = (np.zeros(shape, half) for shape in shapes)

    def both_passes(x, kernel, bias, output_kernel):
        sources = [x, kernel, bias, output_kernel]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = ops.feed_forward(x, kernel, bias, "gelu", output_kernel, tf.zeros(64))
        return y, tape.gradient(y, sources)

    arguments = x, kernel, np.zeros(size, np.float32), output_kernel
    program = lower(both_passes, [], PLATFORM, *arguments)
    for topology in TOPOLOGIES:
        compiled = compiler.compile(program, topology)
        assert compiled["epilogues"].get("BIAS_GELU_AUX") == 1
        assert compiled["calls"]["__gpu$xla.gpu.triton"] == 1


@needs_gpu_compiler
def test_a_kernel_of_triton_with_a_mistake_is_an_error_of_the_compiler(compiler):
    read = triton_kernel._read
    with mock.patch.object(triton_kernel, "_read", lambda *x: read(*x).replace("tt.dot", "tt.do")):
        program = fused_attention(0.1)
    with pytest.raises(AssertionError, match=r"Triton|tt\.do"):
        compiler.compile(program, "h100")


@needs_gpu_compiler
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"_TARGET": "__cudnn$attention"}, "custom call|__cudnn\\$attention"),
        ({"_options": lambda *_: '{"cudnn_fmha_backend_config": {"no_key": 1}}'}, "no_key"),
    ],
    ids=["target", "key"],
)
def test_a_wrong_target_or_key_is_an_error_of_the_compiler(compiler, changed, reason):
    with mock.patch.multiple(cudnn_attention, **changed):
        program = fused_attention()
    with pytest.raises(AssertionError, match=reason):
        compiler.compile(program, "h100")


def test_the_lowered_program_computes_googles_losses_and_gradients(compiler):
    golden = make_gpu_kit.make_golden(make_gpu_kit.Name("golden"))
    program = lower(golden.function, golden.variables, PLATFORM, golden.arguments)
    values = [variable.numpy() for variable in golden.variables]
    results = compiler.run(program, values, golden.arguments)
    expected = golden.facts["expected"]
    np.testing.assert_allclose(results[0], expected[0], rtol=1e-5)
    for found, gradient in zip(results[1 : len(expected)], expected[1:], strict=True):
        np.testing.assert_allclose(found, gradient, rtol=1e-4, atol=1e-7)


def test_the_lowered_step_updates_weights_as_here(compiler):
    """With dropout, whose masks are the same on every device."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.3}
    made_of = config.AlbertConfig.from_dict(CONFIG.to_dict() | rates)
    step = make_step(pretraining_task(made_of))
    variables = variables_of(step)
    values = [variable.numpy() for variable in variables]
    program = lower_step(step, batch_of(0), PLATFORM)
    flags = np.array(True), np.array(False)
    results = compiler.run(program, values, batch_of(0), *flags)
    here = TrainStep(step.model, step.task, step.optimizer, StepOptions())
    here({name: tf.constant(value) for name, value in batch_of(0).items()})
    for variable, found in zip(variables, results[-len(variables) :], strict=True):
        np.testing.assert_allclose(found, variable.numpy(), rtol=1e-4, atol=1e-6)
