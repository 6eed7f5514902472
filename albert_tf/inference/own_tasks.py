"""The rows of the registry for the tasks that need no fine-tuning: masked words and embeddings.

As in `finetuning.own_tasks`, functions import what a row names when it is first needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import EMBEDDINGS, FILL_MASK
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.finetuning.task_spec import TaskSpec

if TYPE_CHECKING:
    from albert_tf.inference.embeddings import Embeddings
    from albert_tf.inference.fill_mask import FillMask
    from albert_tf.inference.tensorflow_embeddings import TensorFlowEmbeddings
    from albert_tf.inference.tensorflow_fill_mask import TensorFlowFillMask
    from albert_tf.model import modeling


class _FillMask:
    """Words in the place of masks."""

    @staticmethod
    def task() -> type[TensorFlowFillMask]:
        from albert_tf.inference.tensorflow_fill_mask import TensorFlowFillMask

        return TensorFlowFillMask

    @staticmethod
    def predicting() -> type[FillMask]:
        from albert_tf.inference.fill_mask import FillMask

        return FillMask

    @staticmethod
    def head() -> type[modeling.AlbertForPretraining]:
        from albert_tf.model.modeling import AlbertForPretraining

        return AlbertForPretraining

    @staticmethod
    def parse(row: Row) -> str:
        from albert_tf.inference.inputs import parse_masked

        return parse_masked(row)


class _Embeddings:
    """Vectors of texts."""

    @staticmethod
    def task() -> type[TensorFlowEmbeddings]:
        from albert_tf.inference.tensorflow_embeddings import TensorFlowEmbeddings

        return TensorFlowEmbeddings

    @staticmethod
    def predicting() -> type[Embeddings]:
        from albert_tf.inference.embeddings import Embeddings

        return Embeddings

    @staticmethod
    def head() -> type[modeling.AlbertEncoder]:
        from albert_tf.model.modeling import AlbertEncoder

        return AlbertEncoder


OWN_TASKS = (
    TaskSpec(
        FILL_MASK,
        FineTuningSettings,
        _FillMask.task,
        _FillMask.head,
        parse=_FillMask.parse,
        flags=("text",),
        is_fine_tuned=False,
        head_variable="cls/predictions/output_bias",
        predicting=_FillMask.predicting,
    ),
    TaskSpec(
        EMBEDDINGS,
        FineTuningSettings,
        _Embeddings.task,
        _Embeddings.head,
        flags=("text", "text_b"),
        is_fine_tuned=False,
        head_variable="",
        predicting=_Embeddings.predicting,
    ),
)
