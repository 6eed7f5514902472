"""The question-answering program, as a function of its settings."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence

from albert_tf import files
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import fine_tune
from albert_tf.squad.decoding import NBEST, NULL_ODDS, PREDICTIONS
from albert_tf.squad.settings import Settings
from albert_tf.squad.task import QuestionAnswering, read_data
from albert_tf.training.hooks import Hook


def run(settings: Settings, hooks: Sequence[Hook] = ()) -> FineTuningResult:
    """Trains, evaluates, answers questions and exports; see `fine_tune`."""
    outputs = [os.path.join(settings.output_dir, name) for name in (PREDICTIONS, NBEST, NULL_ODDS)]
    inputs = {"--train_file": settings.train_file, "--predict_file": settings.predict_file}
    files.check_outputs({"--output_dir": outputs}, inputs)
    data = read_data(settings)
    if "test" in data and data["test"].has_answers:
        settings = dataclasses.replace(settings, do_eval=True)
    return fine_tune(settings, functools.partial(QuestionAnswering.make, data=data), hooks=hooks)
