"""The part of a task that predicts: what a model for it needs besides the model itself.

TensorFlow is not imported here, nor by the subclasses of the tasks in this package, because a model
may have been exported for another runtime. `FineTuningTask` adds what trains a model of TensorFlow.

Shapes: N examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.fine_tuned_text_task import TextPairTask
from albert_tf.finetuning.json_values import as_json
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.splits import DataType
from albert_tf.finetuning.text_task import AnyTextTask, Result
from albert_tf.finetuning.trained_model import TrainedModel
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self

SettingsType = TypeVar("SettingsType", bound=FineTuningSettings)
AnyPredictingTask: TypeAlias = "PredictingTask[Any, Any]"


class PredictingTask(Generic[SettingsType, DataType]):
    """What converts the outputs of a model to predictions.

    Args:
        settings: the settings of the program, `FineTuningSettings` and its own.
        config: the model's config.
        tokenizer: the tokenizer.
        data: name → examples of each split that were read before; {} if there are none.

    Attributes:
        settings, config, tokenizer, data: the arguments.
        name: name of the task in `albert_tf.finetuning.registry`, which a run records; "" for the
            name with which `finetuning.run_task` was called.
        labels: names of the model's outputs, in the order of their ids; () if they have none. They
            are recorded with the checkpoints, and compared when these are used.
        outputs: name of each output that is collected → padding value for outputs whose width
            differs between batches, as with questions that have different numbers of options.
    """

    settings: SettingsType
    name: str = ""
    labels: tuple[str, ...] = ()
    outputs: Mapping[str, float]

    def __init__(
        self,
        settings: SettingsType,
        config: AlbertConfig,
        tokenizer: Tokenizer,
        data: Mapping[str, DataType] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.config = config
        self.tokenizer = tokenizer
        self.data = data

    @classmethod
    def of_trained(cls, trained: TrainedModel) -> Self:
        """Returns the task that a model was trained for.

        Raises:
            ValueError: what is recorded of the task is damaged, or does not fit the model.
        """
        return cls(trained.settings, trained.config, trained.tokenizer)

    def padding(self, padding: Padding) -> Padding:
        """Returns how batches are padded, given the padding that the settings ask for."""
        return padding

    def result(self, outputs: Outputs) -> Result:
        """Returns the prediction for an example as a JSON object, which may contain NumPy values.

        Args:
            outputs: name → [...], the `predictions` for the example. By default, all of them are
                the result.
        """
        return dict(outputs)

    def results(self, outputs: Outputs) -> list[Result]:
        """Returns the `result` of each of N examples, given `predictions` of the shapes [N, …]."""
        rows = (dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True))
        return [as_json(self.result(row)) for row in rows]

    def text_task(self, trained: TrainedModel) -> AnyTextTask:
        """Returns what predicts texts or pairs of texts: override it for other inputs.

        Args:
            trained: the trained model, of which `of_trained` made this task.
        """
        return TextPairTask(self)
