"""Makes the classification task from the settings of the program and the data."""

from __future__ import annotations

from albert_tf.classification import custom
from albert_tf.classification.settings import Settings
from albert_tf.classification.task import Classifier
from albert_tf.config import AlbertConfig
from albert_tf.finetuning.run import list_model_folders
from albert_tf.tokenization import Tokenizer


def make_task(settings: Settings, config: AlbertConfig, tokenizer: Tokenizer) -> Classifier:
    """Returns the task, from the table or a custom one for the data.

    Labels are saved with a trained model, so that its training data is not needed.
    """
    folders = [] if settings.do_train else list_model_folders(settings)
    row = custom.find_task(
        settings.task_name,
        settings.data_dir,
        settings,
        folders,
        settings.quoting,
    )
    return Classifier(row, settings, config, tokenizer)
