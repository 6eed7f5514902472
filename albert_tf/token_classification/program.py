"""Makes the token classification task from the settings of the program and the data."""

from __future__ import annotations

from albert_tf.config import AlbertConfig
from albert_tf.finetuning.run import list_model_folders
from albert_tf.token_classification.settings import Settings
from albert_tf.token_classification.task import TokenClassifier, find_tags
from albert_tf.tokenization import Tokenizer


def make_task(settings: Settings, config: AlbertConfig, tokenizer: Tokenizer) -> TokenClassifier:
    """Returns the task, with the labels in the model's folder or else in the training data."""
    folders = [] if settings.do_train else list_model_folders(settings)
    return TokenClassifier(find_tags(settings, folders), settings, config, tokenizer)
