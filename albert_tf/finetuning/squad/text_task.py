"""Answers the questions that a predictor is asked.

Shapes: N features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.finetuning.batch_runner import Outputs
from albert_tf.finetuning.fine_tuned_text_task import FineTunedTextTask
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad.features import SquadFeatures
from albert_tf.finetuning.squad.outputs import EXPORTED
from albert_tf.finetuning.squad.questions import SquadData, SquadExample
from albert_tf.finetuning.squad.windows import NoFeaturesError, make_features
from albert_tf.finetuning.text_pairs import parse_pairs
from albert_tf.finetuning.text_task import Result, mark

if TYPE_CHECKING:
    from albert_tf.finetuning.squad.predicting_task import PredictingQuestionAnswering


class SquadTextTask(FineTunedTextTask[tuple[str, str], SquadFeatures]):
    """Predicts questions about contexts.

    Args:
        task: the task.
        threshold: the null odds above which a question is not answered; None in SQuAD 1.1.
        top_k: maximum number of answers in a result.
    """

    task: PredictingQuestionAnswering
    argument_names = ("question", "context")
    demos = (
        {"question": "Who lives in Rome?", "context": "Anna lives in Rome and sells bread."},
        {"question": "谁住在北京？", "context": "王小明住在北京，他卖面包。"},
    )
    marks_spans = True
    table_columns = ("answer", "score")

    def __init__(
        self, task: PredictingQuestionAnswering, threshold: float | None, top_k: int
    ) -> None:
        super().__init__(task)
        self.threshold = threshold
        self.top_k = top_k

    def parse_call(
        self,
        questions: str | Sequence[str] | Sequence[Sequence[str]],
        contexts: str | Sequence[str] | None = None,
    ) -> tuple[list[tuple[str, str]], bool]:
        """Returns the pairs (question, context) of a call, and whether it is for a single one.

        Args:
            questions: a question, a list of questions, or a list of pairs (question, context).
            contexts: the context, or one for each of `questions`.

        Raises:
            ValueError: an input is not a string, or there is no context.
        """
        pairs, is_single = parse_pairs(questions, contexts)
        if contexts is None and not all(context for _, context in pairs):
            raise ValueError("expected a context for each question, got none")
        return pairs, is_single

    def features_of(self, examples: Sequence[tuple[str, str]]) -> SquadFeatures | None:
        """Returns the features of questions; None if normalization removes all their contexts."""
        questions = _as_questions(examples)
        try:
            return make_features(
                questions, self.tokenizer, self.task.settings.windows, False, shows_progress=False
            )
        except NoFeaturesError:
            return None

    def outputs_of(self, exported: Outputs) -> Outputs:
        """Returns the outputs of the head, given those of an exported model."""
        return {name: exported[EXPORTED[name]] for name in self.outputs}

    def results(
        self, examples: Sequence[tuple[str, str]], features: SquadFeatures, outputs: Outputs
    ) -> list[Result]:
        """Returns the answer to each question."""
        data = SquadData("questions", _as_questions(examples))
        answers = self.task.answer(Split("test", data, features), outputs)
        found = []
        for name, text in answers.predictions(self.threshold).items():
            possible = [
                _answer(entry["text"], entry["probability"], begin)
                for entry, begin in zip(answers.nbest[name], answers.begins[name], strict=True)
                if begin >= 0
            ]
            is_answered = possible and text == answers.best[name]
            best = possible[0] if is_answered else _answer("", 0.0, -1)
            if answers.null_odds is not None:
                best = best | {"null_odds": answers.null_odds[name]}
            found.append(best | {"answers": possible[: self.top_k]})
        return found

    def unanswered(self, examples: Sequence[tuple[str, str]]) -> list[Result]:
        """Returns the results of questions without an answer."""
        return [_answer("", 0.0, -1) | {"answers": []} for _ in examples]

    @staticmethod
    def show(row: files.JsonObject, result: Result) -> files.JsonObject:
        """Returns the context with the answer in it, for the web page."""
        return mark(row["context"], [{"type": "answer", **result}])

    @staticmethod
    def table(row: files.JsonObject, result: Result) -> list[Sequence[files.Json]]:
        """Returns the best answers with their scores."""
        return [(answer["answer"], answer["score"]) for answer in result["answers"]]


def _as_questions(pairs: Sequence[tuple[str, str]]) -> list[SquadExample]:
    """Returns pairs (question, context) as questions whose ids are their numbers."""
    return [
        SquadExample(str(number), question, context)
        for number, (question, context) in enumerate(pairs)
    ]


def _answer(text: str, score: float, begin: int) -> Result:
    end = begin + len(text) if begin >= 0 else -1
    return {"answer": text, "score": score, "begin": begin, "end": end}
