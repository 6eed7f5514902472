"""The predictor of a model that was exported for OpenVINO or ONNX Runtime, without TensorFlow."""

from __future__ import annotations

from absl import logging

from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.export.runtimes import AUTO, choose_runtime
from albert_tf.finetuning.batching import Batch, BatchRunner, Features, Outputs
from albert_tf.inference.model_task import open_task
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.settings import PredictorSettings


class ExportedPredictor(Predictor):
    """Applies a model that `albert convert` has written.

    Args:
        source: the folder of the model.
        name: name of a task.
        options: the arguments of `load_predictor`.
        precision: "float32", "bfloat16", "float16", or "auto", which is float32.
        threads: number of threads; None for one per core.

    Raises:
        ValueError: the runtime is not installed, or cannot compute the model as asked.
    """

    def __init__(
        self,
        source: ModelSource,
        name: str,
        options: PredictorSettings,
        precision: str = AUTO,
        threads: int | None = None,
    ) -> None:
        path = source.checkpoint
        runtime = choose_runtime(path, options.engine, precision)
        super().__init__(source, name, open_task(source, name, options), options, runtime.name)
        self._check_length()
        precision = "float32" if precision == AUTO else precision
        self._compute = runtime.open_file(path, source.run.record, precision, threads)
        logging.info("%s: %s, computed by %s in %s", path, name, self.engine, precision)

    def _check_length(self) -> None:
        """Raises ValueError if the model takes rows of another length than asked."""
        exported = self.source.run.record.settings.get("max_seq_length")
        is_fixed = self._padding(1).length(1) == self.max_seq_length
        if is_fixed and self.max_seq_length != exported:
            raise ValueError(
                f"max_seq_length={self.max_seq_length}: the exported model takes rows of "
                f"{exported} ids"
            )

    def _make_runner(self, features: Features) -> BatchRunner:
        outputs = self.task.outputs

        def step(batch: Batch) -> Outputs:
            return self.task.outputs_of(self._compute(batch))

        return BatchRunner(step, self._padding(1), outputs, shows_progress=False)
