"""Reads what a prediction needs before TensorFlow is imported: mistakes are reported at once.

These are the folder of the model, with its task, config and vocabulary, and the rows to predict.
Opening a TensorFlow checkpoint imports TensorFlow, which a recorded or given task can spare.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from albert_tf import files
from albert_tf.checkpoints.loading import ModelSource
from albert_tf.finetuning import registry, rows
from albert_tf.finetuning.registry import TaskSpec
from albert_tf.finetuning.rows import (
    COMMAS,
    TABS,
    TEXT_A,
    BadRowError,
    NumberedRow,
    Row,
    parse_pair,
    parse_text,
)
from albert_tf.inference import STANDARD_INPUT, Settings
from albert_tf.model.tokenization import MASK_TOKEN
from albert_tf.settings import SettingsGroup, fields_of
from albert_tf.training.settings import RunSettings

Block = list[tuple[int, Any]]  # (line, input) pairs
ROWS_AT_ONCE = 1024  # rows in a block; sorted by length and batched together
# A first line with one of these names is a header.
_NAMES = {*TEXT_A, "question", "context", "passage", "tokens"}


class ModelFolder(ModelSource):
    """A model in a folder, with the task and the settings that it was trained with.

    The folder is the output directory of one of the programs, which record their task, or any
    folder that `from_pretrained` accepts, such as a released archive. `RunFolder` reads the record
    of a run, or Hugging Face's `config.json`. Without either, the head in the checkpoint tells the
    task.
    """

    def find_task(self, wanted: str | None = None) -> str:
        """Returns the name of the task to use the model for.

        Args:
            wanted: the requested task. None selects the task that the model was fine-tuned for, or
                `registry.DEFAULT` if it was not fine-tuned.

        Raises:
            ValueError: the task is not registered, the model was fine-tuned for another one, or its
                task is ambiguous.
        """
        recorded = self.run.record.task_name
        if wanted is None:
            try:
                return registry.get(recorded).name if recorded else self._task_of_head()
            except ValueError as error:
                raise ValueError(f"{self.run.path}: {error}") from None
        spec = registry.get(wanted)
        if spec.is_fine_tuned and recorded not in ("", spec.name):
            raise ValueError(
                f"{self.run.path}: the model was fine-tuned for the task {recorded}, and has no "
                f"head for {wanted}"
            )
        return spec.name

    def possible_tasks(self) -> tuple[str, ...]:
        """Returns all tasks that the model supports, starting with the one it was fine-tuned for.

        Raises:
            ValueError: the task of the model is ambiguous.
        """
        others = [s.name for s in registry.rows() if not s.is_fine_tuned and self._has_head_of(s)]
        return tuple(dict.fromkeys((self.find_task(), *others)))

    def _has_head_of(self, spec: TaskSpec) -> bool:
        return not spec.head_variable or spec.head_variable in self.recognized.entries

    def _task_of_head(self) -> str:
        """Returns the task that the head in the checkpoint is for, or else `registry.DEFAULT`.

        Raises:
            ValueError: several tasks have such a head.
        """
        fitting = [s for s in registry.rows() if s.is_fine_tuned and self._has_head_of(s)]
        own_heads = [spec for spec in fitting if spec.head_variable != registry.SHARED_HEAD]
        if own_heads or not fitting:
            return own_heads[0].name if own_heads else registry.DEFAULT
        of_size = [s.name for s in fitting if s.num_outputs == self.count_outputs(s)]
        if of_size:
            raise ValueError(
                "the head is one that several tasks have, and no file records its task: pass the "
                f"task, {' or '.join(of_size)}"
            )
        return next(spec.name for spec in fitting if spec.num_outputs is None)

    def count_outputs(self, spec: TaskSpec) -> int:
        """Returns the number of outputs of the head for a task; 0 for a task without a head.

        Raises:
            ValueError: the checkpoint has no such head.
        """
        name = spec.head_variable
        if not self._has_head_of(spec):
            raise ValueError(
                f"{self.checkpoint} has no head for the task {spec.name} ({name}). To train a new "
                "one, pass num_labels"
            )
        return int(self.recognized.entries[name].shape[0]) if name else 0

    def all_settings(self, of: type[SettingsGroup]) -> dict[str, Any]:
        """Returns name → value for a program that uses the trained model, without its data.

        These are the recorded settings of data, model and predictions. Paths are not recorded;
        those that a program requires are the folder of the run's records.

        Args:
            of: the settings class of the program.
        """
        fields = fields_of(of)
        values = dict.fromkeys((field.name for field in fields if field.is_required), self.run.path)
        # Devices, logs and training are those of the machine and of the run that trained.
        others = {field.name for field in fields_of(RunSettings)}
        names = [field.name for field in fields if field.is_recorded and field.name not in others]
        recorded = self.run.record.values_for(of, names)
        return values | recorded | {"output_dir": self.run.path, "do_train": False}


def open_model(settings: Settings) -> ModelFolder:
    """Returns the folder of the model, after checking its vocabulary and `max_seq_length`.

    Raises:
        ValueError, OSError: there is no such model, or config, vocabulary and `max_seq_length` do
            not match; the message says which.
    """
    model_folder = ModelFolder(
        settings.model_dir,
        settings.albert_config_file,
        settings.vocab_file,
        settings.spm_model_file,
        settings.do_lower_case,
    )
    if settings.max_seq_length is not None:
        model_folder.config.check_length(settings.max_seq_length)
    _ = model_folder.tokenizer  # compares the vocabulary with the config and the record
    return model_folder


def parse_masked(row: Row) -> str:
    """Returns the text of a row, whose masked words are to be predicted."""
    text = parse_text(row)
    if MASK_TOKEN not in text:
        raise BadRowError(f"no {MASK_TOKEN} in the text: put it in place of a word to predict")
    return text


def parse_two(row: Row) -> tuple[str, str]:
    """Returns the two texts to compare."""
    pair = parse_pair(row)
    if not pair[1]:
        raise BadRowError("expected two texts to compare, got one")
    return pair


def read_inputs(settings: Settings, task: str) -> list[Block]:
    """Returns blocks of inputs of a task; those given by flags are a block, each with line 0.

    Raises:
        ValueError, OSError: a file cannot be read or has bad rows.
    """
    compares_pairs = settings.similarity and not settings.is_search
    parse = parse_two if compares_pairs else registry.resolve(registry.get(task).parse)
    if settings.input_file is not None:
        return read_blocks(settings.input_file, settings.format, parse)
    try:
        return [[(0, parse(row)) for row in _rows_of(settings)]]
    except BadRowError as error:
        raise ValueError(f"--text, --question, --context or --options: {error}") from None


def _rows_of(settings: Settings) -> list[Row]:
    """Returns the inputs given by flags."""
    others = {
        "question": settings.question or None,
        "context": settings.context or None,
        "options": list(settings.options) or None,
    }
    found: list[Row] = []
    pairs: Sequence[tuple[str | None, str | None]] = settings.pairs or [(None, None)]
    for text, text_b in pairs:
        row: dict[str, Any] = {"text": text, "text_b": text_b, **others}
        row = {name: value for name, value in row.items() if value is not None}
        if "options" in row:
            row["passage"] = row.pop("context", "")
        found.append(row)
    return found


def _with_names(numbered: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """Yields rows as name → value if the first row is a header; otherwise, as they are."""
    first = next(numbered, None)
    if first is None:
        return
    header = rows.find_header(first[1], _NAMES)
    if not header:
        yield first
    for line, row in numbered:
        if not header or isinstance(row, BadRowError):
            yield line, row
        elif len(row) == len(header):
            yield line, dict(zip(header, row, strict=True))
        else:
            expected = f"expected {len(header)} columns, as in the header, got {len(row)}"
            yield line, BadRowError(expected)


def read_blocks(path: str, form: str, parse: Callable[[Row], Any]) -> list[Block]:
    """Returns all rows of a file in blocks of (line, input).

    Args:
        path: the file, or `STANDARD_INPUT`.
        form: the format, one of `inference.FORMATS`.
        parse: converts a row to an input; raises `BadRowError`.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: there are bad rows, or no rows; the message names the file and the lines.
    """
    if path == STANDARD_INPUT:
        path = "standard input"
        text = files.decode_utf8(sys.stdin.buffer.read(), path).removeprefix("\ufeff")
    else:
        text = files.read_text(path)
    numbered = rows.parse_lines(io.StringIO(text, newline="\n"), form, path)
    if form in (TABS, COMMAS):
        numbered = _with_names(numbered)
    found: Block = list(rows.parse_rows(path, numbered, lambda row, _: parse(row)))
    if not found:
        raise ValueError(f"{path}: contains no input")
    return [found[start : start + ROWS_AT_ONCE] for start in range(0, len(found), ROWS_AT_ONCE)]
