"""Settings of run_predict.py. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses
import os

from albert_tf import files, squad
from albert_tf.data.settings import (
    InputSettings,
    SequenceSettings,
    TextSettings,
    VocabularySettings,
)
from albert_tf.finetuning.settings import TaskSettings
from albert_tf.settings import REQUIRED, SettingsGroup, redefined, setting
from albert_tf.training.settings import DeviceSettings, ModelSettings

EMBEDDINGS, FILL_MASK, SIMILARITY = "embeddings", "fill_mask", "similarity"
# What a model is asked for.
TASKS = (
    "classification",
    "regression",
    "token_classification",
    "multiple_choice",
    "spans",
    "answerable_spans",
    EMBEDDINGS,
    FILL_MASK,
)
MEAN, MEAN_LAST_4, POOLED = POOLINGS = ("mean", "mean_last_4", "pooled")
STANDARD_INPUT = "-"
TEXT, TABS, COMMAS, JSON_LINES = FORMATS = ("txt", "tsv", "csv", "jsonl")
_ENDINGS = {".tsv": TABS, ".csv": COMMAS, ".jsonl": JSON_LINES, ".json": JSON_LINES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFolderSettings(SettingsGroup):
    """Which model predicts what."""

    GROUP = "model"

    model_dir: str = setting(
        REQUIRED, "Folder of a fine-tuned or pre-trained model, or a checkpoint in it."
    )
    task: str | None = setting(
        None,
        "What to predict; default: what the model was fine-tuned for, or else embeddings.",
        choices=TASKS,
    )
    mask: bool = setting(False, "Find the words for [MASK] in texts: the same as task=fill_mask.")
    embeddings: bool = setting(False, "Compute embeddings of texts: the same as task=embeddings.")
    similarity: bool = setting(
        False,
        "Compare embeddings by their cosine: text with text_b, the two texts of each row of "
        "input_file, or text with all rows of input_file. (A classifier of pairs, as of LCQMC, "
        "compares better, without this flag.)",
    )
    albert_config_file: str | None = redefined(
        ModelSettings, "albert_config_file", None, "Config of the model, if model_dir has none."
    )
    spm_model_file: str | None = redefined(
        VocabularySettings, "spm_model_file", None, "SentencePiece model, if model_dir has none."
    )
    vocab_file: str | None = redefined(
        VocabularySettings, "vocab_file", None, "WordPiece vocabulary, if model_dir has none."
    )
    do_lower_case: bool | None = redefined(
        VocabularySettings, "do_lower_case", None, "Lower-case the text; default: as in training."
    )
    max_seq_length: int = redefined(
        SequenceSettings,
        "max_seq_length",
        0,
        "Maximum length of a sequence, in tokens; 0 for that of the training, or else all "
        "positions of the model.",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextInputSettings(SettingsGroup):
    """The texts."""

    GROUP = "data"

    text: str | None = setting(None, "A text.")
    text_b: str | None = setting(None, "The second text of a pair.")
    question: str = redefined(squad.Settings, "question", "", "A question about context.")
    context: str = redefined(
        squad.Settings, "context", "", "The text that answers question, or the passage."
    )
    options: tuple[str, ...] = setting((), "Multiple choice: the options, with commas between.")
    input_file: str | None = redefined(
        InputSettings,
        "input_file",
        None,
        "File of inputs: .txt (a text a line, or two with a tab between them), .tsv, .csv or "
        ".jsonl (columns or keys: text or text_a, text_b; question, context; passage, question, "
        "options; tokens); - for standard input.",
    )
    input_format: str | None = redefined(
        TextSettings,
        "input_format",
        None,
        "Format of input_file; default: by its ending; txt for standard input.",
        choices=FORMATS,
    )
    max_bad_rows: int = redefined(
        TaskSettings,
        "max_bad_rows",
        0,
        "Number of unusable rows to skip and report before the input is refused.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ModelFolderSettings, TextInputSettings):
    """All settings of run_predict.py."""

    GROUP = "output and resources"

    top_k: int = setting(
        5, "Number of words for each [MASK], of answers, and of most similar rows.", minimum=1
    )
    pooling: str = setting(
        MEAN,
        "Embeddings: mean of the last layer, mean of the last 4 layers, or pooled: the output at "
        "[CLS] through the pooler.",
        choices=POOLINGS,
    )
    embeddings_file: str | None = setting(
        None, "Write embeddings here: .npy, float32 [rows, hidden_size], or JSON lines."
    )
    batch_size: int = setting(
        0,
        "Number of inputs that are computed at once; 0 for predict_batch_size of the training, or "
        "else 32.",
        minimum=0,
    )
    precision: str = redefined(
        DeviceSettings,
        "precision",
        "auto",
        "Dtype of matmuls and activations; auto picks float32 for a model that was trained in it, "
        "and else bfloat16 where the hardware multiplies it.",
    )
    threads: int = redefined(DeviceSettings, "threads", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        asked = {EMBEDDINGS: self.embeddings, FILL_MASK: self.mask, SIMILARITY: self.similarity}
        wanted = [name for name, is_set in asked.items() if is_set]
        if self.task is not None and wanted != [self.task]:
            wanted.append(self.task)
        if len(wanted) > 1:
            raise ValueError(f"{' and '.join(wanted)}: one thing at a time can be predicted")
        if self.embeddings_file and wanted not in ([], [EMBEDDINGS]):
            raise ValueError(f"--embeddings_file is for embeddings, not for {wanted[0]}")
        self._check_input()

    def _check_input(self) -> None:
        if not (self.text is not None or self.question or self.context or self.input_file):
            raise ValueError(
                "nothing to predict: give --text, --question and --context, or --input_file "
                f"({STANDARD_INPUT} for standard input)"
            )
        is_search = self.similarity and self.text_b is None
        if self.input_file and (self.question or self.context or self.text_b is not None):
            raise ValueError("--input_file: give either a file of inputs, or one on its own")
        if self.input_file and self.text is not None and not is_search:
            raise ValueError(
                "--text and --input_file together are for --similarity: a query, and where to look"
            )
        if self.text_b is not None and self.text is None:
            raise ValueError("--text_b needs --text")

    @property
    def wanted_task(self) -> str | None:
        """The task of the model, one of `TASKS`; None if the model decides."""
        if self.embeddings or self.similarity or self.embeddings_file:
            return EMBEDDINGS
        return FILL_MASK if self.mask else self.task

    @property
    def format(self) -> str:
        """The format of the input file."""
        if self.input_format:
            return self.input_format
        return _ENDINGS.get(os.path.splitext(self.input_file or "")[1].lower(), TEXT)

    def check_paths(self) -> None:
        """Checks model and input, and the folder of `embeddings_file`."""
        super().check_paths()
        for name in ("albert_config_file", "spm_model_file", "vocab_file"):
            if getattr(self, name):
                files.check_file(getattr(self, name), f"--{name}")
        if self.input_file and self.input_file != STANDARD_INPUT:
            files.check_file(self.input_file, "--input_file")
        if self.embeddings_file:
            files.check_replaceable(self.embeddings_file)
            files.check_writable(os.path.dirname(self.embeddings_file), "--embeddings_file")
