"""The question-answering program, as a function of its settings."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping

from albert_tf import files
from albert_tf.config import AlbertConfig
from albert_tf.finetuning import prediction, sweeps
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import fine_tune
from albert_tf.squad.decoding import NBEST, NULL_ODDS, PREDICTIONS
from albert_tf.squad.reading import SquadData, one_question, read_squad
from albert_tf.squad.settings import Settings
from albert_tf.squad.task import QuestionAnswering, choose_version
from albert_tf.tokenization import Tokenizer


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, answers questions and exports; see `fine_tune`."""
    settings = settings.with_a_phase()
    outputs = [os.path.join(settings.output_dir, name) for name in (PREDICTIONS, NBEST, NULL_ODDS)]
    inputs = {"--train_file": settings.train_file, "--predict_file": settings.predict_file}
    files.check_outputs({"--output_dir": outputs}, inputs)
    data = read_data(settings)
    if "test" in data and data["test"].has_answers:
        settings = dataclasses.replace(settings, do_eval=True)
    return fine_tune(settings, functools.partial(make_task, data=data))


def read_data(settings: Settings) -> dict[str, SquadData]:
    """Returns the questions of each split; "dev" and "test" are both `predict_file`.

    Raises:
        ValueError, OSError: a file is not specified or invalid, or has no answers to evaluate on.
    """
    data = {}
    if settings.do_train:
        if not settings.train_file:
            raise ValueError("--do_train requires --train_file, a file of questions")
        data["train"] = read_squad(settings.train_file, is_training=True)
    if settings.do_eval or settings.do_predict:
        if not settings.predict_file:
            phase = "predict" if settings.do_predict else "eval"
            raise ValueError(f"--do_{phase} requires --predict_file, a file of questions")
        questions = read_squad(settings.predict_file, is_training=False)
        if settings.do_eval and not questions.has_answers:
            raise ValueError(f"--do_eval: {settings.predict_file} has no answers to evaluate on")
        if settings.mixed_segmentation is not None:
            questions = dataclasses.replace(questions, is_chinese=settings.mixed_segmentation)
        data["dev"] = data["test"] = questions
    if "question" in settings.splits:
        data["question"] = one_question(settings.question, settings.context)
    return data


def make_task(
    settings: Settings,
    config: AlbertConfig,
    tokenizer: Tokenizer,
    data: Mapping[str, SquadData] | None = None,
) -> QuestionAnswering:
    """Returns the task, with the head of SQuAD 2.0 if the settings, model or data require it.

    Args:
        settings: the settings of the program.
        config: the model's config.
        tokenizer: the tokenizer.
        data: the questions; None reads them, see `read_data`.
    """
    data = read_data(settings) if data is None else data
    folders = [run.output_dir for run in sweeps.plan_runs(settings)]
    trained = next(filter(None, map(prediction.find_trained, folders)), None)
    if trained is None:
        trained = prediction.find_trained(settings.output_dir, settings.init_checkpoint)
    version_2 = choose_version(
        settings.version_2_with_negative, trained, data.get("train"), data.get("test")
    )
    return QuestionAnswering(settings, config, tokenizer, version_2, data)
