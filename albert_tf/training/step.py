"""One update of the weights, for any task: on one device or many, in one batch or in parts.

From a global batch of B rows to an update (`TrainStep`):

1. Each of the R replicas of the model, one on each device, takes its B/R rows of the batch.
2. *Global loss weights.* A loss is a sum of terms, each divided by its weight: the number of masked
   words, sentence pairs or examples. An all-reduce finds the weights of the whole batch. So the
   gradients of its parts add up to that of the batch, whatever the parts are; the mean of their
   means would be another, as parts differ in masked words.
3. *Gradient accumulation.* A replica splits its rows into n micro-batches, computes the gradient of
   one after the other in the memory of one, and adds them up.
4. An all-reduce sums gradients and metrics over the replicas.
5. *Clipping.* The sum is scaled to a global norm of at most 1.
6. The optimizer updates the weights, unless the loss or a gradient is not finite. With float16 the
   loss is scaled (`precision.LossScale`), and a step that overflows lowers the scale.

Letters: B rows of the global batch, R replicas, n micro-batches of a replica.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from albert_tf.optimization import AdamW
from albert_tf.training import devices
from albert_tf.training.precision import LossScale

CLIP_NORM = 1.0
DROPOUT_STREAM = 1  # second half of the dropout seed: other uses of a seed take other numbers

Batch = dict[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]


class Task(Protocol):
    """What the loops ask of a task."""

    selection_metric: str

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """Returns what each term of the loss is divided by, float32 [terms]."""

    def loss(
        self, outputs: Any, batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """Returns the loss of a batch, and metric → (weighted sum, weight).

        Where the batch is part of a larger one, `weights` are the `loss_weights` of that.
        """


class Gradients(NamedTuple):
    """Gradients by the position of their variable in `TrainStep.variables`.

    Variables that the loss does not depend on are left out, and not updated.

    Attributes:
        dense: position → gradient, of the variable's shape.
        embedding: the same for embedding tables, whose gradients TensorFlow computes as
            `tf.IndexedSlices`, a row for each token of the batch; here they are dense.
    """

    dense: dict[int, tf.Tensor]
    embedding: dict[int, tf.Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How a step is computed.

    Attributes:
        seed: of dropout.
        micro_batches: n, for gradient accumulation.
        clip_per_replica: clip the gradient of each replica before they are summed, as Google's
            programs do on TPUs.
        jit_compile: compile the step with XLA.
    """

    seed: int = 0
    micro_batches: int = 1
    clip_per_replica: bool = False
    jit_compile: bool = False


class TrainStep:
    """A training step as a `tf.function`.

    Args:
        model: called with (batch, training=, dropout_seed=).
        task: turns its outputs into a loss.
        optimizer: of `albert_tf.optimization`, created in the strategy's scope, as the model.
        options: how a step is computed.
        strategy: the distribution strategy; None for the current one.
        batch_signature: name → shape and type of what is in a batch. Where batches differ in
            length, None in place of these sizes lets one trace of the step serve all.
        loss_scale: for float16.
    """

    def __init__(
        self,
        model: Any,
        task: Task,
        optimizer: AdamW,
        options: StepOptions | None = None,
        strategy: tf.distribute.Strategy | None = None,
        batch_signature: dict[str, tf.TensorSpec] | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.model, self.task, self.optimizer = model, task, optimizer
        self.options = options or StepOptions()
        self.strategy = strategy or tf.distribute.get_strategy()
        self.loss_scale = loss_scale
        self.variables = list(model.trainable_variables)
        with self.strategy.scope():
            optimizer.build(self.variables)
        flag = tf.TensorSpec((), tf.bool)
        signature = None if batch_signature is None else [batch_signature, flag, flag]
        # A TPU's strategy compiles by itself.
        jit_compile = self.options.jit_compile and not devices.is_tpu(self.strategy)
        self.function = tf.function(
            self._run,
            input_signature=signature,
            reduce_retracing=signature is None,
            jit_compile=jit_compile or None,
            autograph=False,  # nothing here needs it, and it takes a third of the tracing
        )

    def __call__(
        self, batch: Batch, may_update: Any = True, asks_to_stop: Any = False
    ) -> dict[str, tf.Tensor]:
        """Takes a step.

        Args:
            batch: the rows of this process, [B / processes, …].
            may_update: bool scalar; False changes nothing but the step counter.
            asks_to_stop: whether this process wants all of them to stop.

        Returns:
            metric → float32 [2], its sum and weight over the global batch, with `loss`,
            `gradient_norm`, before clipping, and `tokens`, without padding; and bool scalars:
            `is_finite`, whether loss and gradients are; `is_good`, whether `may_update`
            and the run need not stop because of this step; `stops`, whether any process asks.
        """
        return self.function(batch, tf.constant(may_update), tf.constant(asks_to_stop))

    def _run(self, batch: Batch, may_update: tf.Tensor, asks_to_stop: tf.Tensor) -> Any:
        """Runs the step on all replicas of this process."""
        results = self.strategy.run(self._replica_step, args=(batch, may_update, asks_to_stop))
        # They return sums over all replicas: the same.
        result = {
            name: self.strategy.experimental_local_results(value)[0]
            for name, value in results.items()
        }
        if self.loss_scale is not None:
            # Overflow is part of float16's life, until no smaller scale is left.
            is_least = self.loss_scale.value <= self.loss_scale.minimum
            result["is_good"] = may_update & (result["is_finite"] | ~is_least)
            self.loss_scale.update(result["is_finite"])
        return result

    def _replica_step(self, batch: Batch, may_update: tf.Tensor, asks_to_stop: tf.Tensor) -> Any:
        """Takes the step on one replica; all of them return the same."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        rows = self._replica_rows(batch, replica)
        weights = self.task.loss_weights(rows)
        if not self.options.clip_per_replica:
            weights = self._all_reduce(weights)

        gradients, sums = self._accumulate_gradients(rows, replica, weights)
        factor: tf.Tensor | float = 1.0
        if self.options.clip_per_replica:
            norm = global_norm(gradients, sums["squares"][0])
            sums["norm"] = _with_weight(norm)  # their sum is finite if each of them is
            gradients = scale_gradients(gradients, clipping_factor(norm))
        sums["stops"] = _with_weight(tf.cast(asks_to_stop, tf.float32))
        share = 1.0 / self.strategy.num_replicas_in_sync
        if "input_mask" in rows:
            tokens = tf.reduce_sum(tf.cast(rows["input_mask"], tf.float32))
            sums["tokens"] = tf.stack((tokens, share))

        gradients = self._all_reduce(gradients)
        # All sums in one exchange.
        totals = tf.unstack(self._all_reduce(tf.stack(list(sums.values()))))
        sums = dict(zip(sums, totals, strict=True))
        squares = sums.pop("squares")[0]
        if self.options.clip_per_replica:
            norm = sums.pop("norm")[0]
            sums["gradient_norm"] = _with_weight(norm * share)
        else:
            norm = global_norm(gradients, squares)
            factor = clipping_factor(norm)
            sums["gradient_norm"] = _with_weight(norm)

        stops = sums.pop("stops")[0] > 0
        is_finite = tf.math.is_finite(sums["loss"][0] + norm)
        is_good = is_finite & may_update
        gradients = scale_gradients(gradients, tf.where(is_good, factor, 0.0))
        by_position = gradients.dense | gradients.embedding
        self.optimizer.apply_gradients_if(
            is_good,
            [(by_position[position], self.variables[position]) for position in sorted(by_position)],
        )
        return sums | {"is_finite": is_finite, "is_good": is_good, "stops": stops}

    def _replica_rows(self, batch: Batch, replica: tf.Tensor | int) -> Batch:
        """Returns the rows of a replica, counted over all processes: [B/R, …]."""
        local = replica - devices.first_local_replica(self.strategy)
        return take_part(batch, local, devices.num_local_replicas(self.strategy))

    def _all_reduce(self, values: Any) -> Any:
        """Returns the sums of tensors over all replicas."""
        if self.strategy.num_replicas_in_sync == 1:
            return values
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

    def _accumulate_gradients(
        self, rows: Batch, replica: tf.Tensor | int, weights: tf.Tensor
    ) -> tuple[Gradients, dict[str, tf.Tensor]]:
        """Returns the sums, over a replica's micro-batches, of what `_gradients` returns."""
        count = self.options.micro_batches

        def compute(number: tf.Tensor | int) -> tuple[Gradients, dict[str, tf.Tensor]]:
            seed = self._dropout_seed(replica * count + number)
            return self._gradients(take_part(rows, number, count), weights, seed)

        if count == 1:
            return compute(0)
        # Traced by itself, so that what the loop adds up is known before it begins.
        traced = tf.function(compute, autograph=False)
        traced = traced.get_concrete_function(tf.TensorSpec((), tf.int32))

        def add(number: tf.Tensor, total: Any) -> Any:
            return number + 1, tf.nest.map_structure(tf.add, total, traced(number))

        zeros = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), traced.structured_outputs
        )
        _, total = tf.while_loop(
            lambda number, _: number < count, add, (0, zeros), parallel_iterations=1
        )
        return total

    def _dropout_seed(self, micro_batch: tf.Tensor | int) -> tf.Tensor:
        """Returns the dropout seed of a micro-batch, counted over all replicas, of this step."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        seed = tf.random.fold_in((self.options.seed, DROPOUT_STREAM), step)
        is_whole = self.strategy.num_replicas_in_sync * self.options.micro_batches == 1
        return seed if is_whole else tf.random.fold_in(seed, micro_batch)

    def _gradients(
        self, batch: Batch, weights: tf.Tensor, seed: tf.Tensor
    ) -> tuple[Gradients, dict[str, tf.Tensor]]:
        """Returns the gradients of a micro-batch, and name → float32 [2], a sum and its weight.

        The sums are the metrics, `loss`, and `squares`: of the embedding tables' gradients, as
        `global_norm` takes them.
        """
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_seed=seed)
            loss, sums = self.task.loss(outputs, batch, weights)
            scaled_loss = loss if self.loss_scale is None else self.loss_scale.scale(loss)
        found = tape.gradient(scaled_loss, self.variables)
        if self.loss_scale is not None:
            found = self.loss_scale.unscale(found)

        gradients, squares = Gradients({}, {}), tf.constant(0.0)
        for position, (gradient, variable) in enumerate(zip(found, self.variables, strict=True)):
            if gradient is None:
                continue
            dense = tf.ensure_shape(tf.convert_to_tensor(gradient), variable.shape)
            if isinstance(gradient, tf.IndexedSlices):
                squares += tf.reduce_sum(tf.square(gradient.values))
                gradients.embedding[position] = dense
            else:
                gradients.dense[position] = dense

        # Losses of parts add up to the loss of the batch, or to those of replicas by themselves,
        # of which the mean is taken.
        parts = self.options.micro_batches
        if not self.options.clip_per_replica:
            parts *= self.strategy.num_replicas_in_sync
        pairs = {name: tf.stack(pair) for name, pair in sums.items()}
        return gradients, pairs | {
            "loss": tf.stack((loss, 1.0 / parts)),
            "squares": _with_weight(squares),
        }

    def first_bad_tensor(self, batch: Batch) -> str:
        """Names the first tensor of the current step that is not finite, in order of computation.

        Computes the step again without changing anything, part by part, on one device.

        Args:
            batch: the rows of this process.
        """
        for variable in self.variables:
            if not _is_finite(variable):
                return f"the weight {variable.name}"
        parts = devices.num_local_replicas(self.strategy) * self.options.micro_batches
        first = devices.first_local_replica(self.strategy) * self.options.micro_batches
        for part in range(parts):
            rows = take_part(batch, part, parts)
            for name, value in self._tensors(rows, self._dropout_seed(first + part)):
                if not _is_finite(value):
                    return name
        return "none that can be found again, in the rows of this process"

    def _tensors(self, batch: Batch, seed: tf.Tensor) -> Iterator[tuple[str, tf.Tensor]]:
        """Yields name and value of the tensors of a step, in the order of computation."""
        with tf.GradientTape() as tape:
            outputs, (embeddings, *layers) = self.model(
                batch, training=True, dropout_seed=seed, output_hidden_states=True
            )
            loss, sums = self.task.loss(outputs, batch)
        yield "embedding_output", embeddings
        for layer, value in enumerate(layers):
            yield f"the output of layer {layer}", value
        if not isinstance(outputs, Mapping):
            outputs = {"logits": outputs}
        for name in sorted(outputs):
            yield name, outputs[name]
        for name, (total, _) in sums.items():
            yield name, total
        yield "the loss", loss
        gradients = tape.gradient(loss, self.variables)
        for gradient, variable in reversed(list(zip(gradients, self.variables, strict=True))):
            if gradient is not None:
                yield f"the gradient of {variable.name}", tf.convert_to_tensor(gradient)


def global_norm(gradients: Gradients, squares: tf.Tensor) -> tf.Tensor:
    """Returns the norm that gradients are clipped by, as Google's programs, float32 scalar.

    They call `tf.clip_by_global_norm`, which takes `tf.IndexedSlices` row by row: the gradient of
    an embedding table counts with the squares of its rows, one for each token of the batch, and
    rows of the same word are not added before. So these squares are summed where the rows are, in
    each micro-batch, and add up over parts of a batch. All other gradients are squared once they
    are summed.

    Args:
        gradients: of the batch.
        squares: sum of the squares of the rows, float32 scalar.
    """
    dense = [tf.reduce_sum(tf.square(gradient)) for gradient in gradients.dense.values()]
    return tf.sqrt(tf.add_n([squares, *dense]))


def clipping_factor(norm: tf.Tensor) -> tf.Tensor:
    """Returns what gradients of a global norm are multiplied by, so that it is at most 1."""
    return CLIP_NORM * tf.minimum(1.0 / norm, 1.0 / CLIP_NORM)


def scale_gradients(gradients: Gradients, factor: tf.Tensor) -> Gradients:
    """Returns gradients times a scalar; 0 makes zeros of them even where they are not finite."""
    return tf.nest.map_structure(lambda x: tf.math.multiply_no_nan(x, factor), gradients)


def take_part(batch: Batch, number: tf.Tensor | int, count: int) -> Batch:
    """Returns part `number` of the `count` equal parts of a batch's rows."""
    if count == 1:
        return batch

    def take(value: tf.Tensor) -> tf.Tensor:
        # By reshaping, as XLA knows the size of what comes out of it.
        shape = tf.shape(value)
        parts = tf.reshape(value, tf.concat(([count, shape[0] // count], shape[1:]), axis=0))
        rows = None if value.shape[0] is None else value.shape[0] // count
        return tf.ensure_shape(parts[number], (rows, *value.shape[1:]))

    return {name: take(value) for name, value in batch.items()}


def _with_weight(total: tf.Tensor) -> tf.Tensor:
    """Returns a sum with the weight 1, as metrics have one, float32 [2]."""
    return tf.stack((total, 1.0))


def _is_finite(value: tf.Tensor) -> bool:
    value = tf.convert_to_tensor(value)
    return not value.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(value)))
