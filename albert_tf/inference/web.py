"""The web page of `albert predict --web`: a form for each task of a model, with inputs to try."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning.rows import abbreviate
from albert_tf.finetuning.task import AnyTask, Result
from albert_tf.inference import web_access
from albert_tf.inference.embedding_program import search
from albert_tf.inference.model_task import find_predicted_task, possible_tasks
from albert_tf.inference.opening import make_predictor, using_devices
from albert_tf.inference.predictor import Predictor
from albert_tf.inference.settings import Settings
from albert_tf.model.tokenization import Tokenizer

if TYPE_CHECKING:  # what needs TensorFlow
    import gradio as gr


TEXTS = "texts"  # a column of texts to compare with one, which only the page has
LISTS = ("options", TEXTS)  # columns with several texts, which are the lines of a field


def choose_examples(source: ModelSource, task: str, predicted: AnyTask) -> list[dict[str, str]]:
    """Returns rows to try a task with: column → text, for the same columns in each.

    They are of the training data if the run has kept some, and then there is a second text only if
    these are pairs. Otherwise they are in a language that the vocabulary has.

    Args:
        source: the model.
        task: name of the task.
        predicted: what the predictor asks of it.

    Raises:
        ValueError: the file of the run is damaged.
    """
    kept: Sequence[Mapping[str, files.Json]] = []
    if source.run.record.task_name == task:
        kept = source.run.examples()
    rows = kept or readable_rows(predicted.demos, predicted.tokenizer)
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: _as_text(row.get(name, "")) for name in columns} for row in rows]


def _as_text(value: files.Json) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def readable_rows(
    rows: Sequence[Mapping[str, str]], tokenizer: Tokenizer
) -> list[Mapping[str, str]]:
    """Returns the rows that the vocabulary has the characters of, Chinese before other languages.

    Vocabularies for Chinese have English words too; those for English have no Chinese characters.
    """
    known = [row for row in rows if not _has_unknown_pieces(row, tokenizer)]
    return sorted(known, key=lambda row: not _is_chinese(row)) or list(rows)


def _has_unknown_pieces(row: Mapping[str, str], tokenizer: Tokenizer) -> bool:
    return any(tokenizer.unk_id in tokenizer.encode(text) for text in row.values())


def _is_chinese(row: Mapping[str, str]) -> bool:
    return any("CJK" in unicodedata.name(char, "") for text in row.values() for char in text)


_MOST_BARS = 5  # of labels; the table, which is there if there are more, has all of them
_ONE_PER_LINE = "{}, one per line"  # label of a field with several texts
# What is shown first, the rows of the table, and the result.
_Answer: TypeAlias = tuple[files.Json, list[list[files.Json]], Result | None]


@dataclasses.dataclass(frozen=True)
class Form:
    """The form of a task.

    Attributes:
        answer: returns what is shown of the result for the values of the fields; the rows of the
            table, which are none if there is nothing else to show; and the result.
        blocks: what Gradio draws.
        fields: the fields.
        best: shows the answer, as bars or as spans.
        table: shows the rows.
    """

    answer: Callable[..., _Answer]
    blocks: gr.Blocks
    fields: Sequence[gr.Textbox]
    best: gr.Label | gr.HighlightedText
    table: gr.Dataframe


def make_form(settings: Settings, source: ModelSource, task: str) -> Form:
    """Returns the form of one of the tasks of a model, which has answered its first example."""
    import gradio as gr

    predictor = make_predictor(source, task, settings, settings.precision, settings.threads)
    predicted = predictor.task
    examples = choose_examples(source, task, predicted)
    answer = _answering(predictor, list(examples[0]), settings.top_k)
    shown: _Answer = (None, [], None)
    with contextlib.suppress(gr.Error):  # a task of your own may have no use for the example
        # The first call compiles: no visitor has to wait for it.
        shown = answer(*examples[0].values())
    labels = files.quote_all(predictor.labels) if predictor.labels else ""
    make_best = (
        gr.HighlightedText
        if predicted.marks_spans
        else functools.partial(gr.Label, num_top_classes=_MOST_BARS)
    )
    with gr.Blocks() as blocks:
        with gr.Row():
            with gr.Column():
                fields = [
                    gr.Textbox(
                        text, label=_ONE_PER_LINE.format(key) if key in LISTS else key, lines=2
                    )
                    for key, text in examples[0].items()
                ]
                with gr.Row():
                    gr.ClearButton(fields)
                    button = gr.Button("Submit", variant="primary")
            with gr.Column():
                best = make_best(shown[0], label=f"{task}: {labels}" if labels else task)
                table = gr.Dataframe(headers=list(predicted.table_columns), **_filled(shown[1]))
                with gr.Accordion("JSON", open=False):
                    result = gr.JSON(shown[2], show_label=False)
        gr.on(
            [button.click, *(field.submit for field in fields)],
            lambda *values: _updates(answer(*values)),
            fields,
            [best, table, result],
        )
        gr.Examples([list(row.values()) for row in examples], fields)
    return Form(answer, blocks, fields, best, table)


def _answering(predictor: Predictor, columns: Sequence[str], top_k: int) -> Callable[..., _Answer]:
    """Returns the function that answers the values of the fields of these columns."""
    import gradio as gr

    task = predictor.task

    def answer(*values: str) -> _Answer:
        row: files.JsonObject = dict(zip(columns, values, strict=True))
        row |= {key: row[key].splitlines() for key in LISTS if key in row}
        try:
            if TEXTS in row:
                texts = [({"line": n}, (text, "")) for n, text in enumerate(row[TEXTS], 1)]
                result: Result = {"nearest": search(predictor, row["text"], [texts], top_k)}
            else:
                (result,) = predictor.predict([task.parse_row(row)])
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None
        shown, rows = task.show(row, result), task.table(row, result)
        has_all = not task.marks_spans and isinstance(shown, dict) and len(shown) <= _MOST_BARS
        return shown, [] if has_all else _rounded(rows), result

    return answer


def _updates(answer: _Answer) -> tuple[files.Json, gr.Dataframe, Result | None]:
    """Returns an answer as the components of a page take it."""
    import gradio as gr

    shown, rows, result = answer
    return shown, gr.Dataframe(**_filled(rows)), result


def _filled(rows: list[list[files.Json]]) -> dict[str, Any]:
    """Returns the arguments of a table that is seen if it has rows."""
    return {"value": rows or None, "visible": bool(rows), "label": "alternatives"}


def _rounded(table: Sequence[Sequence[files.Json]]) -> list[list[files.Json]]:
    """Returns a table whose numbers are short enough to be compared."""
    return [[round(x, 4) if isinstance(x, float) else x for x in row] for row in table]


def make_page(settings: Settings, source: ModelSource) -> gr.Blocks:
    """Returns a page with a form for each task of the model, or for the requested one."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr

    wanted = settings.wanted_task
    names = possible_tasks(source) if wanted is None else (find_predicted_task(source, wanted),)
    forms = [make_form(settings, source, name).blocks for name in names]
    name = os.path.basename(os.path.abspath(source.folder))
    labels = abbreviate(source.run.record.labels)
    task = names[0].replace("_", " ") + (f" of {labels}" if labels else "")
    return gr.TabbedInterface(forms, list(names), title=f"{name}: {task}")


def serve(settings: Settings, source: ModelSource) -> None:
    """Serves the page on 127.0.0.1 until Ctrl-C."""
    with using_devices(settings, source):
        page = make_page(settings, source)
        try:
            page.launch(
                server_name="127.0.0.1",
                server_port=settings.web_port,
                share=False,
                quiet=True,
                footer_links=[],
                app_kwargs={"middleware": web_access.middleware()},
                max_file_size=0,
                run_history=False,
                ssr_mode=False,
                prevent_thread_lock=True,
            )
        except OSError:
            raise OSError(f"--web_port={settings.web_port}: in use. Pass another one") from None
        logging.info("Serving at %s; press Ctrl-C to stop", page.local_url)
        page.block_thread()
