"""The training step for any task: data parallelism, gradient accumulation, clipping, update.

`TrainStep` turns a global batch of B rows into one update of the weights:

1. *Data parallelism.* Each of the R replicas of the model, one per device, processes B/R rows.
2. *Global loss weights.* A loss is a sum of terms, each divided by a weight: the number of masked
   words, sentence pairs or examples. An all-reduce computes the weights of the global batch first.
   The gradients of its parts then add up to the gradient of the batch, however it is split. A mean
   of the parts' means would not, because parts differ in their number of masked words.
3. *Gradient accumulation.* A replica splits its rows into n micro-batches and computes their
   gradients one after the other, which takes the memory of one micro-batch, and adds them up.
4. *All-reduce.* Gradients and metrics are summed over the replicas.
5. *Clipping.* The summed gradient is scaled to a global norm of at most 1.
6. *Update.* The optimizer updates the weights unless the loss or a gradient is not finite. With
   float16, the loss is scaled (`LossScale`), and an overflow lowers the scale.

Notation: B rows of the global batch, R replicas, n micro-batches per replica.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import NamedTuple, TypeAlias, TypeVar

import tensorflow as tf

from albert_tf.model import dispatch
from albert_tf.model.modeling import AlbertModel
from albert_tf.model.ops import SEED_ALGORITHM
from albert_tf.model.optimizer import Optimizer
from albert_tf.training import replicas
from albert_tf.training.loss_scale import LossScale
from albert_tf.training.task import Batch, LossTask, check_names

Nested = TypeVar("Nested")  # a tensor, or a structure of tensors

CLIP_NORM = 1.0
DROPOUT_STREAM = 1  # second half of the dropout seed; other uses of the seed have other numbers


class Gradients(NamedTuple):
    """Gradients, keyed by the index of the variable in `TrainStep.variables`.

    Variables that the loss does not depend on are omitted and not updated.

    Attributes:
        dense: index → gradient, in the shape of the variable.
        embedding: the same for embedding tables. TensorFlow computes their gradients as
            `tf.IndexedSlices` with a row for each token of the batch; here they are dense.
    """

    dense: dict[int, tf.Tensor]
    embedding: dict[int, tf.Tensor]


class LocalSums(NamedTuple):
    """Sums over the rows of a replica. Pairs of a sum and its weight are float32 [2].

    Attributes:
        loss: the loss, as a pair.
        metrics: name → pair, the metrics of the task.
        squares: sum of the squared rows of the embedding tables' gradients; see `global_norm`.
        norm: global norm of the replica's gradient, if it is clipped on each replica.
        tokens: number of tokens without padding; 0 if it is unknown.
        stop_requests: number of requests to stop.
    """

    loss: tf.Tensor
    metrics: dict[str, tf.Tensor]
    squares: tf.Tensor
    norm: tf.Tensor
    tokens: tf.Tensor
    stop_requests: tf.Tensor


PartResult: TypeAlias = tuple[Gradients, LocalSums]  # of a micro-batch, or of a replica


class StepResult(NamedTuple):
    """The result of a training step, the same on all replicas.

    Attributes:
        loss: the sum of the losses over the global batch and their weight, float32 [2].
        metrics: name → the same for each metric of the task.
        gradient_norm: global norm of the gradient before clipping, float32 scalar.
        tokens: number of tokens without padding, float32 scalar; 0 if it is unknown.
        is_finite: whether loss and gradients are finite, bool scalar.
        is_applied: whether an update was allowed, and this step does not require the run to stop.
        stop_requested: whether any process requests a stop.
    """

    loss: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor
    tokens: tf.Tensor
    is_finite: tf.Tensor
    is_applied: tf.Tensor
    stop_requested: tf.Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """Options of the training step.

    Attributes:
        seed: seed of the dropout masks.
        micro_batches: n, the number of gradient accumulation steps.
        clip_per_replica: whether to clip the gradient of each replica before they are summed, as
            Google's programs do on TPUs.
        jit_compile: whether to compile the step with XLA; with several replicas, the gradients of
            each.
        gpu_kernels: the operations that run their kernels for NVIDIA GPUs in the compiled step.
    """

    seed: int = 0
    micro_batches: int = 1
    clip_per_replica: bool = False
    jit_compile: bool = False
    gpu_kernels: frozenset[str] = frozenset()


class TrainStep:
    """A training step as a `tf.function`.

    Args:
        model: called as `model(batch, training=True, dropout_seed=...)`.
        task: computes the loss from the model's outputs.
        optimizer: an optimizer of `albert_tf.model.optimization`, created in the strategy's scope,
            like the model.
        options: options of the step.
        strategy: the distribution strategy; defaults to the current one.
        batch_signature: name → shape and dtype of each tensor in a batch. Dimensions that vary
            between batches are None, so that the step is traced only once.
        loss_scale: loss scaling for float16.
    """

    def __init__(
        self,
        model: AlbertModel,
        task: LossTask,
        optimizer: Optimizer,
        options: StepOptions | None = None,
        strategy: tf.distribute.Strategy | None = None,
        batch_signature: dict[str, tf.TensorSpec] | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.model = model
        self.task = task
        self.optimizer = optimizer
        self.options = options or StepOptions()
        self.strategy = strategy or tf.distribute.get_strategy()
        self.loss_scale = loss_scale
        self.variables = list(model.trainable_variables)
        with self.strategy.scope():
            optimizer.build(self.variables)
        flag = tf.TensorSpec((), tf.bool)
        signature = None if batch_signature is None else [batch_signature, flag, flag]
        # TPUStrategy compiles the step itself. XLA compiles no sums over other replicas: with
        # several, it compiles what each of them computes before these.
        is_compiled = self.options.jit_compile and not replicas.is_tpu(self.strategy)
        has_replicas = self.strategy.num_replicas_in_sync > 1
        self._accumulated = self._accumulate_gradients
        if is_compiled and has_replicas:
            self._accumulated = tf.function(
                self._accumulate_gradients, jit_compile=True, autograph=False
            )
        self.function = tf.function(
            self._run,
            input_signature=signature,
            reduce_retracing=signature is None,
            jit_compile=(is_compiled and not has_replicas) or None,
            autograph=False,  # not needed, and takes a third of the tracing time
        )

    def __call__(
        self, batch: Batch, allow_update: tf.Tensor | bool = True, request_stop: bool = False
    ) -> StepResult:
        """Runs one training step.

        Args:
            batch: the rows of this process, [B / processes, …].
            allow_update: bool scalar; False changes nothing but the step counter.
            request_stop: whether this process requests that all processes stop.
        """
        result: StepResult = self.function(
            batch, tf.constant(allow_update), tf.constant(request_stop)
        )
        return result

    def _run(self, batch: Batch, allow_update: tf.Tensor, request_stop: tf.Tensor) -> StepResult:
        """Runs the step on all replicas of this process."""
        rows = self._split_rows(batch)
        results = self.strategy.run(self._replica_step, args=(rows, allow_update, request_stop))
        # All replicas return the same values: sums over all of them.
        result: StepResult = tf.nest.map_structure(
            lambda value: self.strategy.experimental_local_results(value)[0], results
        )
        if self.loss_scale is not None:
            # In float16 an overflow is normal, unless the scale is already at its minimum.
            is_least = self.loss_scale.value <= self.loss_scale.minimum
            result = result._replace(is_applied=allow_update & (result.is_finite | ~is_least))
            self.loss_scale.update(result.is_finite)
        return result

    def _split_rows(self, batch: Batch) -> Batch:
        """Returns the rows of each replica of this process, [B/R, …], split in host memory.

        A device then receives only its own rows: the values of the result differ by replica.
        """
        count = replicas.num_local_replicas(self.strategy)
        if count == 1:
            return batch
        first = replicas.first_local_replica(self.strategy)

        def take(context: tf.distribute.experimental.ValueContext) -> Batch:
            return take_part(batch, context.replica_id_in_sync_group - first, count)

        with tf.device("CPU"):
            parts: Batch = self.strategy.experimental_distribute_values_from_function(take)
        return parts

    def _replica_step(
        self, rows: Batch, allow_update: tf.Tensor, request_stop: tf.Tensor
    ) -> StepResult:
        """Runs the step on one replica, with its rows. All replicas return the same values."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        weights = self.task.loss_weights(rows)
        if not self.options.clip_per_replica:
            weights = self._all_reduce(weights)

        gradients, local = self._accumulated(rows, replica, weights)
        if self.options.clip_per_replica:
            norm = global_norm(gradients, local.squares)
            local = local._replace(norm=norm)  # the sum is finite if all norms are
            gradients = scale_gradients(gradients, clipping_factor(norm))
        local = local._replace(stop_requests=tf.cast(request_stop, tf.float32))
        if "input_mask" in rows:
            tokens = tf.reduce_sum(tf.cast(rows["input_mask"], tf.float32))
            local = local._replace(tokens=tokens)

        gradients = self._all_reduce(gradients)
        total = self._sum_up(local)
        factor: tf.Tensor | float = 1.0
        if self.options.clip_per_replica:
            norm = total.norm
            gradient_norm = norm * (1.0 / self.strategy.num_replicas_in_sync)
        else:
            norm = gradient_norm = global_norm(gradients, total.squares)
            factor = clipping_factor(norm)

        is_finite = tf.math.is_finite(total.loss[0] + norm)
        is_applied = is_finite & allow_update
        gradients = scale_gradients(gradients, tf.where(is_applied, factor, 0.0))
        by_position = gradients.dense | gradients.embedding
        self.optimizer.apply_gradients_if(
            is_applied,
            [(by_position[position], self.variables[position]) for position in sorted(by_position)],
        )
        return StepResult(
            total.loss,
            total.metrics,
            gradient_norm,
            total.tokens,
            is_finite,
            is_applied,
            total.stop_requests > 0,
        )

    def _sum_up(self, local: LocalSums) -> LocalSums:
        """Returns the sums over all replicas, by a single all-reduce."""
        if self.strategy.num_replicas_in_sync == 1:
            return local
        parts = tf.nest.flatten(local)
        sizes = [part.shape.num_elements() for part in parts]
        joined = tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)
        totals = tf.split(self._all_reduce(joined), sizes)
        shaped = [tf.reshape(x, part.shape) for x, part in zip(totals, parts, strict=True)]
        summed: LocalSums = tf.nest.pack_sequence_as(local, shaped)
        return summed

    def _all_reduce(self, values: Nested) -> Nested:
        """Returns tensors summed over all replicas."""
        if self.strategy.num_replicas_in_sync == 1:
            return values
        context = tf.distribute.get_replica_context()
        summed: Nested = context.all_reduce(tf.distribute.ReduceOp.SUM, values)
        return summed

    def _accumulate_gradients(
        self, rows: Batch, replica: tf.Tensor | int, weights: tf.Tensor
    ) -> PartResult:
        """Returns the results of `_gradients`, summed over the replica's micro-batches."""
        count = self.options.micro_batches

        def compute(number: tf.Tensor | int) -> PartResult:
            seed = self._dropout_seed(replica * count + number)
            return self._gradients(take_part(rows, number, count), weights, seed)

        if count == 1:
            return compute(0)
        # Traced separately because the loop needs the structure and shapes of its sums in advance.
        traced = tf.function(compute, autograph=False)
        traced = traced.get_concrete_function(tf.TensorSpec((), tf.int32))

        def add(number: tf.Tensor, total: PartResult) -> tuple[tf.Tensor, PartResult]:
            return number + 1, tf.nest.map_structure(tf.add, total, traced(number))

        zeros = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), traced.structured_outputs
        )
        total: PartResult
        _, total = tf.while_loop(
            lambda number, _: number < count, add, (0, zeros), parallel_iterations=1
        )
        return total

    def _dropout_seed(self, micro_batch: tf.Tensor | int) -> tf.Tensor:
        """Returns the dropout seed of a micro-batch, given by its index over all replicas."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        stream = self.options.seed, DROPOUT_STREAM
        seed = tf.random.fold_in(stream, step, alg=SEED_ALGORITHM)
        is_whole = self.strategy.num_replicas_in_sync * self.options.micro_batches == 1
        return seed if is_whole else tf.random.fold_in(seed, micro_batch, alg=SEED_ALGORITHM)

    def _gradients(self, batch: Batch, weights: tf.Tensor, seed: tf.Tensor) -> PartResult:
        """Returns the gradients of a micro-batch, and its sums."""
        kernels = self.options.gpu_kernels  # none: as in the context in which the step is traced
        with dispatch.for_gpu(kernels) if kernels else contextlib.nullcontext():
            with tf.GradientTape() as tape:
                outputs = self.model(batch, training=True, dropout_seed=seed)
                loss, sums = self.task.loss(outputs, batch, weights)
                scaled_loss = loss if self.loss_scale is None else self.loss_scale.scale(loss)
            of_variables = tape.gradient(scaled_loss, self.variables)
        if self.loss_scale is not None:
            of_variables = self.loss_scale.unscale(of_variables)

        gradients = Gradients({}, {})
        squares = tf.constant(0.0)
        gradient_of = zip(of_variables, self.variables, strict=True)
        for position, (gradient, variable) in enumerate(gradient_of):
            if gradient is None:
                continue
            dense = tf.ensure_shape(tf.convert_to_tensor(gradient), variable.shape)
            if isinstance(gradient, tf.IndexedSlices):
                squares += tf.reduce_sum(tf.square(gradient.values))
                gradients.embedding[position] = dense
            else:
                gradients.dense[position] = dense

        # The losses of the micro-batches add up to the loss of the global batch. With
        # `clip_per_replica` they add up to a loss for each replica, and the mean is reported.
        parts = self.options.micro_batches
        if not self.options.clip_per_replica:
            parts *= self.strategy.num_replicas_in_sync
        check_names((*sums, *self.task.derived), "the task's metric")
        zero = tf.constant(0.0)
        local = LocalSums(
            loss=tf.stack((loss, 1.0 / parts)),
            metrics={name: tf.stack(pair) for name, pair in sums.items()},
            squares=squares,
            norm=zero,
            tokens=zero,
            stop_requests=zero,
        )
        return gradients, local


def take_part(batch: Batch, number: tf.Tensor | int, count: int) -> Batch:
    """Returns part `number` of a batch split into `count` equal parts."""
    if count == 1:
        return batch

    def take(value: tf.Tensor) -> tf.Tensor:
        # Reshaping instead of slicing lets XLA infer the static size of the result.
        shape = tf.shape(value)
        parts = tf.reshape(value, tf.concat(([count, shape[0] // count], shape[1:]), axis=0))
        rows = None if value.shape[0] is None else value.shape[0] // count
        return tf.ensure_shape(parts[number], (rows, *value.shape[1:]))

    return {name: take(value) for name, value in batch.items()}


def global_norm(gradients: Gradients, squares: tf.Tensor) -> tf.Tensor:
    """Returns the global norm for clipping as computed by Google's programs, float32 scalar.

    They call `tf.clip_by_global_norm`, which treats each row of `tf.IndexedSlices` separately: the
    gradient of an embedding table contributes the squares of its rows, one row for each token of
    the batch, without first adding up the rows of the same word. These squares are therefore
    computed in each micro-batch and added up. All other gradients are squared after summation.

    Args:
        gradients: gradients of the batch.
        squares: sum of the squared rows of the embedding gradients, float32 scalar.
    """
    dense = [tf.reduce_sum(tf.square(gradient)) for gradient in gradients.dense.values()]
    # Not `tf.add_n`: it begins with any input whose memory it can reuse, which differs between runs
    # if another operation reads `squares` as well.
    return tf.sqrt(tf.reduce_sum(tf.stack([squares, *dense])))


def clipping_factor(norm: tf.Tensor) -> tf.Tensor:
    """Returns the factor that scales gradients of the given global norm to at most CLIP_NORM."""
    return CLIP_NORM * tf.minimum(1.0 / norm, 1.0 / CLIP_NORM)


def scale_gradients(gradients: Gradients, factor: tf.Tensor) -> Gradients:
    """Returns gradients times a scalar; a factor of 0 turns even non-finite values into 0."""
    scaled: Gradients = tf.nest.map_structure(
        lambda x: tf.math.multiply_no_nan(x, factor), gradients
    )
    return scaled
