r"""Fine-tunes ALBERT to give a text any number of labels: a task outside of the package.

    python examples/my_task.py --data_dir=topics --labels=boats,rain --output_dir=topics_model \
        --init_checkpoint=albert_base_v2 --do_train --do_eval --do_predict --num_train_epochs=3
    albert predict --task_module=examples/my_task.py --model_dir=topics_model --text="Rain."

--data_dir has train.jsonl, dev.jsonl and test.jsonl with lines {"text": "…", "labels": ["rain"]}.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.cli.programs import fine_tune
from albert_tf.finetuning import registry
from albert_tf.finetuning.columns import parse_text
from albert_tf.finetuning.rows import BadRowError, text_cell
from albert_tf.finetuning.settings import FineTuningSettings, TaskSettings
from albert_tf.finetuning.task import FineTuningTask
from albert_tf.finetuning.token_sequences import TokenSequences
from albert_tf.inference import inputs
from albert_tf.model.heads import AlbertForClassification
from albert_tf.settings import MODEL, REQUIRED, redefined, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings):
    """The flags of all fine-tuning programs, and two more."""

    data_dir: str = redefined(TaskSettings, "data_dir", REQUIRED)
    labels: tuple[str, ...] = setting(REQUIRED, "Labels, separated by commas.", affects=MODEL)


class MultiLabel(FineTuningTask):
    """A logit for each of K labels, whose sigmoid is the label's probability."""

    settings_class = Settings
    selection_metric = "f1"

    def __init__(self, settings, config, tokenizer):
        super().__init__(settings, config, tokenizer)
        self.labels, self.outputs = settings.labels, {"probabilities": 0.0}

    def parse(self, row):
        labels = text_cell(row, "labels").split() if "labels" in row else []
        if not set(labels) <= set(self.labels):
            raise BadRowError(f"labels {labels}: expected some of {self.labels}")
        return parse_text(row), [label in labels for label in self.labels]

    def read(self, split):
        blocks = inputs.read_blocks(f"{self.settings.data_dir}/{split}.jsonl", "jsonl", self.parse)
        return [row for block in blocks for _, row in block]

    def make_features(self, data, split):
        texts, targets = zip(*data, strict=True)
        sequences = self.tokenizer.sequences(list(texts), None, self.settings.max_seq_length)
        return TokenSequences.pack(sequences, {"label_ids": np.array(targets, np.float32)})

    def build_model(self):
        return AlbertForClassification(self.config, len(self.labels))

    def losses(self, outputs, batch):
        losses = tf.nn.sigmoid_cross_entropy_with_logits(batch["label_ids"], outputs)  # [B, K]
        return tf.reduce_mean(losses, axis=1), {}

    def predictions(self, outputs):
        return {"probabilities": tf.sigmoid(outputs)}

    def measure(self, split, outputs, batch_size):
        ours, gold = outputs["probabilities"] > 0.5, split.features.columns["label_ids"] > 0
        return {"f1": float(2 * (ours & gold).sum() / max(ours.sum() + gold.sum(), 1))}

    def result(self, outputs):
        rows = dict(zip(self.labels, outputs["probabilities"], strict=True))
        return {"labels": [label for label in rows if rows[label] > 0.5], "probabilities": rows}


registry.register(registry.TaskSpec("multi_label", MultiLabel, AlbertForClassification))

if __name__ == "__main__":
    fine_tune("multi_label", __doc__)
