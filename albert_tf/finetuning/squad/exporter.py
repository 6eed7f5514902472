"""What is exported of a model that answers questions.

Shapes: B batch size, S sequence length.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import tf_keras

from albert_tf.checkpoints import finding
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.signatures import (
    Export,
    Signature,
    Tensors,
    token_inputs,
    token_signatures,
)
from albert_tf.finetuning.exporter import Exporter
from albert_tf.finetuning.squad.evaluation import THRESHOLD
from albert_tf.finetuning.squad.outputs import EXPORTED
from albert_tf.finetuning.squad.threshold import THRESHOLD_FILE, null_threshold

if TYPE_CHECKING:
    from albert_tf.finetuning.squad.task import QuestionAnswering


class SquadExporter(Exporter):
    """Makes the export of a model that answers questions, as Google's program does."""

    task: QuestionAnswering

    def served_outputs(self, outputs: Tensors) -> Tensors:
        """Returns the outputs of the exported model, under the names of Google's program.

        As in that program, the outputs of SQuAD 1.1 are logits, although they are named "log_prob".
        """
        return {EXPORTED[name]: outputs[name] for name in self.task.outputs}

    def make_export(
        self, model: tf_keras.layers.Layer, max_seq_length: int, folder: RunFolder
    ) -> Export:
        """Returns a SavedModel for tensors and a TFLite file, in the folders of Google's program.

        In SQuAD 1.1, the TFLite file returns `start_logits` and `end_logits`. In SQuAD 2.0, which
        Google's program does not export, both models return `OUTPUTS_V2` and have `p_mask` as an
        additional input.
        """
        settings = self.task.settings
        inputs = token_inputs(max_seq_length, *(("p_mask",) if self.task.version_2 else ()))
        contents = {}
        if self.task.version_2:
            threshold = null_threshold(settings, self.task.version_2, folder)
            contents[THRESHOLD_FILE] = (json.dumps({THRESHOLD: threshold}) + "\n").encode()

        def logits(batch: Tensors) -> Tensors:
            outputs = model(batch, training=False)
            return {name: outputs[name] for name in self.task.outputs}

        return Export(
            token_signatures(inputs, functools.partial(self.serve, model), takes_examples=False),
            contents,
            Signature(inputs, logits),
            settings.tflite_quantization,
            finding.SPAN_EXPORTS,
        )
