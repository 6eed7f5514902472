"""The rows of the registry for the tasks in this folder.

Everything that a row names is imported by a function when it is first needed: settings and readers
before TensorFlow is, tasks and heads with it; what predicts needs none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.tasks import (
    ANSWERABLE_SPANS,
    CLASSIFICATION,
    MULTI_LABEL,
    MULTIPLE_CHOICE,
    REGRESSION,
    SPANS,
    TOKEN_CLASSIFICATION,
    head_settings,
)
from albert_tf.finetuning.head_variables import ANSWERABLE_SPANS_HEAD, SPANS_HEAD
from albert_tf.finetuning.rows import Row
from albert_tf.finetuning.task_spec import TaskSpec
from albert_tf.tables import Table

if TYPE_CHECKING:
    from albert_tf.finetuning import classification, race, squad, token_classification
    from albert_tf.finetuning.classification.predicting_task import PredictingClassifier
    from albert_tf.finetuning.classification.task import Classifier
    from albert_tf.finetuning.race.predicting_task import PredictingMultipleChoice
    from albert_tf.finetuning.race.task import MultipleChoice
    from albert_tf.finetuning.squad.predicting_task import PredictingQuestionAnswering
    from albert_tf.finetuning.squad.task import QuestionAnswering
    from albert_tf.finetuning.token_classification.predicting_task import PredictingTokenClassifier
    from albert_tf.finetuning.token_classification.task import TokenClassifier
    from albert_tf.model import heads

Given: TypeAlias = Mapping[str, Table] | None  # split → rows that were passed from Python


class _Classification:
    """Classification, regression, and any number of labels."""

    @staticmethod
    def settings() -> type[classification.Settings]:
        from albert_tf.finetuning.classification import Settings

        return Settings

    @staticmethod
    def task() -> type[Classifier]:
        from albert_tf.finetuning.classification.task import Classifier

        return Classifier

    @staticmethod
    def predicting() -> type[PredictingClassifier]:
        from albert_tf.finetuning.classification.predicting_task import PredictingClassifier

        return PredictingClassifier

    @staticmethod
    def head() -> type[heads.AlbertForClassification]:
        from albert_tf.model.heads import AlbertForClassification

        return AlbertForClassification

    @staticmethod
    def read(
        settings: classification.Settings, trained: RunFolder | None, given: Given = None
    ) -> object:
        from albert_tf.finetuning.classification.reading import read_data

        return read_data(settings, trained, given)


class _TokenClassification:
    """Tags of tokens."""

    @staticmethod
    def settings() -> type[token_classification.Settings]:
        from albert_tf.finetuning.token_classification import Settings

        return Settings

    @staticmethod
    def task() -> type[TokenClassifier]:
        from albert_tf.finetuning.token_classification.task import TokenClassifier

        return TokenClassifier

    @staticmethod
    def predicting() -> type[PredictingTokenClassifier]:
        from albert_tf.finetuning.token_classification.predicting_task import (
            PredictingTokenClassifier,
        )

        return PredictingTokenClassifier

    @staticmethod
    def head() -> type[heads.AlbertForTokenClassification]:
        from albert_tf.model.heads import AlbertForTokenClassification

        return AlbertForTokenClassification

    @staticmethod
    def read(
        settings: token_classification.Settings, trained: RunFolder | None, given: Given = None
    ) -> object:
        from albert_tf.finetuning.token_classification.reading import read_data

        return read_data(settings, trained, given)

    @staticmethod
    def parse(row: Row) -> str | list[str]:
        from albert_tf.finetuning.token_classification.sentences import parse_words

        return parse_words(row)


class _MultipleChoice:
    """One of several options."""

    @staticmethod
    def settings() -> type[race.Settings]:
        from albert_tf.finetuning.race import Settings

        return Settings

    @staticmethod
    def task() -> type[MultipleChoice]:
        from albert_tf.finetuning.race.task import MultipleChoice

        return MultipleChoice

    @staticmethod
    def predicting() -> type[PredictingMultipleChoice]:
        from albert_tf.finetuning.race.predicting_task import PredictingMultipleChoice

        return PredictingMultipleChoice

    @staticmethod
    def head() -> type[heads.AlbertForMultipleChoice]:
        from albert_tf.model.heads import AlbertForMultipleChoice

        return AlbertForMultipleChoice

    @staticmethod
    def read(settings: race.Settings, trained: RunFolder | None, given: Given = None) -> object:
        from albert_tf.finetuning.race.reading import read_data

        return read_data(settings, trained, given)

    @staticmethod
    def parse(row: Row) -> object:
        from albert_tf.finetuning.race.questions import parse_choice

        return parse_choice(row)


class _Spans:
    """Answers to questions in a context."""

    @staticmethod
    def settings() -> type[squad.Settings]:
        from albert_tf.finetuning.squad import Settings

        return Settings

    @staticmethod
    def task() -> type[QuestionAnswering]:
        from albert_tf.finetuning.squad.task import QuestionAnswering

        return QuestionAnswering

    @staticmethod
    def predicting() -> type[PredictingQuestionAnswering]:
        from albert_tf.finetuning.squad.predicting_task import PredictingQuestionAnswering

        return PredictingQuestionAnswering

    @staticmethod
    def head() -> type[heads.AlbertForSpans]:
        from albert_tf.model.heads import AlbertForSpans

        return AlbertForSpans

    @staticmethod
    def answerable_head() -> type[heads.AlbertForAnswerableSpans]:
        from albert_tf.model.heads import AlbertForAnswerableSpans

        return AlbertForAnswerableSpans

    @staticmethod
    def read(settings: squad.Settings, trained: RunFolder | None, given: Given = None) -> object:
        from albert_tf.finetuning.squad.reading import read_data

        return read_data(settings, trained, given)

    @staticmethod
    def parse(row: Row) -> tuple[str, str]:
        from albert_tf.finetuning.squad.questions import parse_question

        return parse_question(row)


_CLASSIFICATION = TaskSpec(
    CLASSIFICATION,
    _Classification.settings,
    _Classification.task,
    _Classification.head,
    _Classification.read,
    flags=("text", "text_b"),
    head_settings=head_settings(CLASSIFICATION),
    predicting=_Classification.predicting,
)
_SPANS = TaskSpec(
    SPANS,
    _Spans.settings,
    _Spans.task,
    _Spans.head,
    _Spans.read,
    _Spans.parse,
    flags=("question", "context"),
    head_variable=SPANS_HEAD,
    predicting=_Spans.predicting,
)
OWN_TASKS = (
    _CLASSIFICATION,
    dataclasses.replace(
        _CLASSIFICATION,
        name=REGRESSION,
        num_outputs=1,
        head_arguments={"num_labels": 1, "is_regression": True},
    ),
    dataclasses.replace(
        _CLASSIFICATION,
        name=MULTI_LABEL,
        head_arguments={"is_multi_label": True},
    ),
    TaskSpec(
        TOKEN_CLASSIFICATION,
        _TokenClassification.settings,
        _TokenClassification.task,
        _TokenClassification.head,
        _TokenClassification.read,
        _TokenClassification.parse,
        flags=("text",),
        predicting=_TokenClassification.predicting,
    ),
    TaskSpec(
        MULTIPLE_CHOICE,
        _MultipleChoice.settings,
        _MultipleChoice.task,
        _MultipleChoice.head,
        _MultipleChoice.read,
        _MultipleChoice.parse,
        flags=("context", "question", "options"),
        num_outputs=1,
        predicting=_MultipleChoice.predicting,
    ),
    _SPANS,
    dataclasses.replace(
        _SPANS,
        name=ANSWERABLE_SPANS,
        head=_Spans.answerable_head,
        head_variable=ANSWERABLE_SPANS_HEAD,
        head_settings=head_settings(ANSWERABLE_SPANS),
    ),
)
