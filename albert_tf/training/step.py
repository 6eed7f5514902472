"""One update of the weights, for any task: on one device or many, in one batch or in parts.

A batch of B rows is divided among R devices, and a device's share into n micro-batches, which it
computes one after the other in the memory of one. The sum of their gradients is that of the whole
batch, whatever R and n: a loss is a sum of terms, and each is divided by its weight over the whole
batch (masked words, sentence pairs, examples), not by that of a part.

Letters: B batch, R devices, n micro-batches of a device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from albert_tf.optimization import AdamW, clipping_factor, scale_gradients
from albert_tf.training import devices
from albert_tf.training.precision import LossScale

DROPOUT_STREAM = 1  # second half of the dropout seed: other uses of a seed take other numbers

Batch = dict[str, tf.Tensor]
Sums = dict[str, tuple[tf.Tensor, tf.Tensor]]


class Task(Protocol):
    """What the loops ask of a task."""

    selection_metric: str

    def loss_weights(self, batch: Batch) -> tf.Tensor:
        """What each term of the loss is divided by, float32 [terms]."""

    def loss(
        self, outputs: dict[str, tf.Tensor], batch: Batch, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, Sums]:
        """The loss of a batch, and metric → (weighted sum, weight).

        Where the batch is part of a larger one, `weights` are the `loss_weights` of that.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How a step is computed.

    Attributes:
        seed: of dropout.
        micro_batches: n, of each device.
        clip_per_replica: clip the gradient of each device by itself and add them up then, as
            Google's programs do on TPUs.
        jit_compile: compile the step with XLA.
    """

    seed: int = 0
    micro_batches: int = 1
    clip_per_replica: bool = False
    jit_compile: bool = False


class TrainStep:
    """A step of training, traced once.

    Args:
        model: called with (batch, training=, dropout_seed=).
        task: turns its outputs into a loss.
        optimizer: of `albert_tf.optimization`, made in the strategy's scope, as the model.
        options: how.
        strategy: where; the present one if None.
        batch_signature: as in `training.Trainer`.
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
        scalar = tf.TensorSpec((), tf.bool)
        signature = None if batch_signature is None else [batch_signature, scalar, scalar]
        # A TPU's strategy compiles by itself.
        jit_compile = self.options.jit_compile and not devices.is_tpu(self.strategy)
        self.function = tf.function(
            self._on_all_devices,
            input_signature=signature,
            reduce_retracing=signature is None,
            jit_compile=jit_compile or None,
            autograph=False,  # nothing here needs it, and it takes a third of the tracing
        )

    def __call__(self, batch: Batch, may_update: Any = True, asks_to_stop: Any = False) -> Any:
        """Takes a step.

        Args:
            batch: the rows of this process, [B / workers, …].
            may_update: bool scalar; False changes nothing but the step counter.
            asks_to_stop: whether this process wants all of them to stop.

        Returns:
            metric → float32 [2], its sum and weight over all devices, with `loss`; and bool
            scalars: `is_finite`, whether loss and gradient are; `is_good`, whether `may_update`
            and this step is not to be held against the run; `stops`, whether any process asks.
        """
        return self.function(batch, tf.constant(may_update), tf.constant(asks_to_stop))

    def _on_all_devices(self, batch: Batch, may_update: tf.Tensor, stop: tf.Tensor) -> Any:
        results = self.strategy.run(self._on_one_device, args=(batch, may_update, stop))
        # All devices have the same: what they return are sums over all of them.
        first = {
            name: self.strategy.experimental_local_results(value)[0]
            for name, value in results.items()
        }
        if self.loss_scale is not None:
            is_least = self.loss_scale.value <= self.loss_scale.minimum
            # Overflow is float16's ordinary life, until no smaller scale is left.
            first["is_good"] = may_update & (first["is_finite"] | ~is_least)
            self.loss_scale.update(first["is_finite"])
        return first

    def _on_one_device(self, batch: Batch, may_update: tf.Tensor, stop: tf.Tensor) -> Any:
        options, context = self.options, tf.distribute.get_replica_context()
        number, count = context.replica_id_in_sync_group, self.strategy.num_replicas_in_sync
        share = self._share(batch, number)
        weights = self.task.loss_weights(share)
        if count > 1 and not options.clip_per_replica:
            weights = context.all_reduce(tf.distribute.ReduceOp.SUM, weights)

        gradients, sums = self._gradients(share, number, weights)
        norm = self._norm(gradients, sums)
        if options.clip_per_replica:
            gradients = scale_gradients(gradients, clipping_factor(norm))
        sums |= {"norm": _pair(norm), "stops": _pair(tf.cast(stop, tf.float32))}
        if count > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
            sums = _add_over_devices(context, sums)
            norm = self._norm(gradients, sums)

        norms = norm + sums.pop("norm")[0] + sums.pop("squares")[0]
        is_finite = tf.math.is_finite(sums["loss"][0] + norms)
        is_good = is_finite & may_update
        factor = 1.0 if options.clip_per_replica else clipping_factor(norm)
        self.optimizer.is_active = is_good
        self.optimizer.apply_gradients(
            zip(
                scale_gradients(gradients, tf.where(is_good, factor, 0.0)),
                self._trained,
                strict=True,
            ),
            skip_gradients_aggregation=True,
        )
        stops = sums.pop("stops")[0] > 0
        return sums | {"is_finite": is_finite, "is_good": is_good, "stops": stops}

    def _share(self, batch: Batch, number: tf.Tensor | int) -> Batch:
        """The rows of the device `number`, counted over all processes: [B/R, …]."""
        local = number - devices.first_local_replica(self.strategy)
        return take_part(batch, local, devices.num_local_replicas(self.strategy))

    def _gradients(
        self, share: Batch, number: tf.Tensor | int, weights: tf.Tensor
    ) -> tuple[list[Any], dict[str, tf.Tensor]]:
        """Gradients and sums over a device's rows, of a loss whose weights are `weights`."""
        parts = self.options.micro_batches

        def compute(part: tf.Tensor | int) -> tuple[list[Any], dict[str, tf.Tensor]]:
            seed = self._dropout_seed(number * parts + part)
            return self._gradients_of_part(take_part(share, part, parts), weights, seed)

        if parts == 1:
            return compute(0)
        # Traced by itself, so that what the loop adds up is known before it begins.
        traced = tf.function(compute, autograph=False)
        traced = traced.get_concrete_function(tf.TensorSpec((), tf.int32))

        def add(part: tf.Tensor, total: Any) -> Any:
            return part + 1, tf.nest.map_structure(tf.add, total, traced(part))

        zeros = tf.nest.map_structure(
            lambda spec: tf.zeros(spec.shape, spec.dtype), traced.structured_outputs
        )
        _, total = tf.while_loop(
            lambda part, _: part < parts, add, (0, zeros), parallel_iterations=1
        )
        return total

    def _dropout_seed(self, part: tf.Tensor | int) -> tf.Tensor:
        """Of the present step; a different one for each part of the batch."""
        step = tf.cast(self.optimizer.iterations, tf.int32)
        seed = tf.random.fold_in((self.options.seed, DROPOUT_STREAM), step)
        is_whole = self.strategy.num_replicas_in_sync * self.options.micro_batches == 1
        return seed if is_whole else tf.random.fold_in(seed, part)

    def _gradients_of_part(
        self, batch: Batch, weights: tf.Tensor, seed: tf.Tensor
    ) -> tuple[list[Any], dict[str, tf.Tensor]]:
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_seed=seed)
            loss, sums = self.task.loss(outputs, batch, weights)
            scaled = loss if self.loss_scale is None else self.loss_scale.scale(loss)
        gradients = tape.gradient(scaled, self.variables)
        if self.loss_scale is not None:
            gradients, _ = self.loss_scale.unscale(gradients)
        pairs = zip(gradients, self.variables, strict=True)
        present = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
        self._trained = [variable for _, variable in present]
        slices = [value for value, _ in present if isinstance(value, tf.IndexedSlices)]
        # The norm takes each row of an embedding's gradient by itself (see `clip_gradients`).
        # These squares add up over the parts of a batch; those of whole tensors do not.
        squares = [tf.reduce_sum(tf.square(value.values)) for value in slices]
        self._is_sliced = [isinstance(value, tf.IndexedSlices) for value, _ in present]
        found = [tf.ensure_shape(tf.convert_to_tensor(value), v.shape) for value, v in present]
        share = self.options.micro_batches
        if not self.options.clip_per_replica:
            share *= self.strategy.num_replicas_in_sync
        stacked = {name: tf.stack(pair) for name, pair in sums.items()}
        own = {"loss": tf.stack((loss, 1.0 / share)), "squares": _pair(tf.add_n([0.0, *squares]))}
        return found, stacked | own

    def _norm(self, gradients: list[tf.Tensor], sums: dict[str, tf.Tensor]) -> tf.Tensor:
        pairs = zip(gradients, self._is_sliced, strict=True)
        whole = [tf.reduce_sum(tf.square(value)) for value, is_sliced in pairs if not is_sliced]
        return tf.sqrt(tf.add_n([sums["squares"][0], *whole]))

    def first_bad_tensor(self, batch: Batch) -> str:
        """What of the present step is the first not to be finite, in the order of computation.

        Computes it again without changing anything, part by part, on one device.

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
        with tf.GradientTape() as tape:
            outputs = self.model(batch, training=True, dropout_seed=seed)
            loss, sums = self.task.loss(outputs, batch)
        yield "embedding_output", outputs["embedding_output"]
        for layer, value in enumerate(outputs["encoder_outputs"]):
            yield f"the output of layer {layer}", value
        # What later layers make of it comes after what they are made of.
        for name in sorted(outputs.keys() - {"embedding_output", "encoder_outputs"}):
            yield name, outputs[name]
        for name, (total, _) in sums.items():
            yield name, total
        yield "the loss", loss
        gradients = tape.gradient(loss, self.variables)
        for gradient, variable in reversed(list(zip(gradients, self.variables, strict=True))):
            if gradient is not None:
                yield f"the gradient of {variable.name}", tf.convert_to_tensor(gradient)


def _is_finite(value: tf.Tensor) -> bool:
    value = tf.convert_to_tensor(value)
    return not value.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(value)))


def take_part(batch: Batch, number: tf.Tensor | int, count: int) -> Batch:
    """Part `number` of the `count` equal parts of a batch's rows."""
    if count == 1:
        return batch

    def take(value: tf.Tensor) -> tf.Tensor:
        # By reshaping, as XLA knows the size of what comes out of it.
        shape = tf.shape(value)
        parts = tf.reshape(value, tf.concat(([count, shape[0] // count], shape[1:]), axis=0))
        rows = None if value.shape[0] is None else value.shape[0] // count
        return tf.ensure_shape(parts[number], (rows, *value.shape[1:]))

    return {name: take(value) for name, value in batch.items()}


def _pair(value: tf.Tensor) -> tf.Tensor:
    return tf.stack((value, 1.0))


def _add_over_devices(context: Any, sums: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Sums over all devices, in one exchange."""
    stacked = tf.stack(list(sums.values()))
    added = context.all_reduce(tf.distribute.ReduceOp.SUM, stacked)
    return dict(zip(sums, tf.unstack(added), strict=True))
