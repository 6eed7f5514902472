"""Settings of `albert predict`, some of which are arguments of `load_predictor`."""

from __future__ import annotations

import dataclasses
import importlib.util
import os

from albert_tf import files
from albert_tf.checkpoints import tasks
from albert_tf.checkpoints.tasks import EMBEDDINGS
from albert_tf.data.settings import (
    InputSettings,
    SequenceSettings,
    TextSettings,
    VocabularyFileSettings,
    VocabularySettings,
)
from albert_tf.export.runtimes import AUTO, ENGINES, OPENVINO
from albert_tf.finetuning import registry
from albert_tf.finetuning.classification.settings import MIN_SEQ_LENGTH
from albert_tf.finetuning.task import TOP_K
from albert_tf.inference import answer_file
from albert_tf.model.config import config_file
from albert_tf.model.poolings import POOLINGS
from albert_tf.settings import REQUIRED, SettingsGroup, redefined, setting
from albert_tf.tables import COMMAS, JSON_LINES, TABS
from albert_tf.tables.compression import ending_of
from albert_tf.training.settings import DeviceSettings, ModelSettings

STANDARD_INPUT = "-"
NPY = ".npy"
TEXT = "txt"
FORMATS = (TEXT, TABS, COMMAS, JSON_LINES)
_ENDINGS = {".tsv": TABS, ".csv": COMMAS, ".jsonl": JSON_LINES, ".json": JSON_LINES}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFolderSettings(VocabularyFileSettings):
    """Settings of the model and its task."""

    GROUP = "model"

    model_dir: str = setting(
        REQUIRED,
        "Folder of a fine-tuned or pre-trained model, a checkpoint in it, an export_dir, whose "
        "newest export is used, what albert convert wrote for OpenVINO or ONNX, or the name of a "
        "downloaded model.",
    )
    task: str | None = setting(
        None,
        f"Task to predict: {', '.join(tasks.NAMES)}, or one that task_module registers; if "
        "not given, the one the model was fine-tuned for, fill_mask for a Hugging Face model that "
        "is one for masked words, or else embeddings.",
    )
    task_module: str | None = setting(
        None,
        "Python file, or module, that registers a task of your own; only required if the model "
        "was fine-tuned for it.",
    )
    similarity: bool = setting(
        False,
        "Compute the cosine similarity of text and text_b, of the two texts in each row of "
        "input_file, or of text and every row of input_file.",
    )
    albert_config_file: str | None = redefined(
        ModelSettings,
        "albert_config_file",
        None,
        "JSON file with the architecture of the model; if not given, the one in model_dir.",
    )
    do_lower_case: bool | None = redefined(
        VocabularySettings,
        "do_lower_case",
        None,
        "Lower-case the text; if not given, as in training.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextInputSettings(SettingsGroup):
    """Settings of the inputs."""

    GROUP = "data"

    text: str | tuple[str, ...] | None = setting(
        None,
        "Text to predict, instead of those in input_file; several texts if given several times.",
        is_repeated=True,
    )
    text_b: str | tuple[str, ...] | None = setting(
        None,
        "Second text, to predict a pair of texts; used only with text, and given as often.",
        is_repeated=True,
    )
    question: str = setting("", "Question to answer from context, instead of those in input_file.")
    context: str = setting(
        "",
        "Text to answer question from, or the passage of a multiple-choice question; required by "
        "question, unless there are options.",
    )
    options: tuple[str, ...] = setting(
        (),
        "Options of a multiple-choice question, separated by commas; used only for multiple "
        "choice.",
    )
    input_file: str | None = redefined(
        InputSettings,
        "input_file",
        None,
        "File of inputs, instead of text or question: .txt (one text per line, or two separated "
        "by a tab), .tsv or .csv (columns text or text_a, text_b; question, context; passage, "
        "question, options; tokens; or those that the training named), or .jsonl, .json, .parquet "
        "or .arrow (columns of the same names), each also as .gz, .bz2, .xz, .zip or .zst, or - "
        "for standard input.",
        takes_several=False,
    )
    input_format: str | None = redefined(
        TextSettings,
        "input_format",
        None,
        "Format of input_file; if not given, the file name decides, and standard input is txt.",
        choices=FORMATS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictorSettings(SettingsGroup):
    """Settings of a predictor, which are also arguments of `load_predictor`."""

    GROUP = "prediction and export"

    max_seq_length: int | None = redefined(
        SequenceSettings,
        "max_seq_length",
        None,
        "Maximum sequence length, in tokens; if not given, that of the training, or else all "
        "positions of the model.",
        minimum=MIN_SEQ_LENGTH,
        is_optional=True,
    )
    top_k: int = setting(
        TOP_K, "Maximum number of words per [MASK], of answers, or of most similar rows.", minimum=1
    )
    pooling: str | None = setting(
        None,
        "How to pool embeddings: mean over the tokens of the last layer, mean over those of the "
        "last 4 layers, the pooled output of [CLS], the last layer's output at [CLS], or its "
        "maximum; if not given, as a folder of sentence-transformers says, or else mean.",
        choices=POOLINGS,
    )
    batch_size: int | None = setting(
        None,
        "Number of inputs per batch; if not given, predict_batch_size of the training, or else 32.",
        minimum=1,
        is_optional=True,
    )
    engine: str = setting(
        AUTO,
        "Inference engine: tensorflow, openvino, which is faster on CPUs and requires the extra "
        "openvino (pip install 'albert-tf2[openvino]'), or auto: tensorflow, and for 512 rows and "
        "more openvino, if it is installed, supports the model, and there is no GPU or TPU. What "
        "albert convert wrote for a runtime is computed by it.",
        choices=ENGINES,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.engine == OPENVINO and importlib.util.find_spec("openvino") is None:
            raise ValueError(
                "engine=openvino requires the package openvino: pip install "
                "'albert-tf2[openvino]', or use engine=tensorflow"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class WebSettings(SettingsGroup):
    """Settings of the web page."""

    GROUP = "web page"

    web: bool = setting(
        False,
        "Serve a web page on 127.0.0.1 to try the model, until Ctrl-C; requires the extra web.",
    )
    web_port: int = setting(
        8000, "Port to listen on; used only with web.", minimum=1, maximum=65535
    )

    def check_paths(self) -> None:
        """Checks that the package for the web page is installed."""
        super().check_paths()
        if self.web and importlib.util.find_spec("gradio") is None:
            raise ValueError("--web requires the package gradio: pip install 'albert-tf2[web]'")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ModelFolderSettings, TextInputSettings, PredictorSettings, WebSettings):
    """All settings of `albert predict`."""

    GROUP = "output and resources"
    ESSENTIAL = (
        "model_dir",
        "text",
        "text_b",
        "input_file",
        "output_file",
        "task",
        "similarity",
        "engine",
        "web",
    )

    output_file: str | None = setting(
        None,
        "File to write the answers to, in place of printing them: .csv has the columns of the "
        "inputs, and label and probabilities, or what the task answers; .jsonl has the same as "
        "objects.",
    )
    embeddings_file: str | None = setting(
        None,
        "NumPy file (.npy) to write embeddings to, float32 [rows, hidden_size]; if not given, they "
        "are printed.",
    )
    precision: str = redefined(
        DeviceSettings,
        "precision",
        "auto",
        "Precision of matmuls and activations; auto uses float32 for a model trained in it and for "
        "what albert convert wrote for OpenVINO or ONNX, else bfloat16 if the hardware supports "
        "it. The log says which.",
    )
    threads: int | None = redefined(DeviceSettings, "threads", None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.needs_embeddings and self.task not in (None, EMBEDDINGS):
            raise ValueError(
                f"--task={self.task}: --similarity and --embeddings_file are for embeddings only"
            )
        if self.embeddings_file and not self.embeddings_file.endswith(NPY):
            raise ValueError(f"--embeddings_file={self.embeddings_file}: expected a name in {NPY}")
        self._check_output_file()
        if self.wanted_task is not None and self.task_module is None:
            registry.get(self.wanted_task)
        if not self.web:
            self._check_input()

    def _check_output_file(self) -> None:
        if self.output_file is None:
            return
        if not self.output_file.endswith(answer_file.ENDINGS):
            raise ValueError(
                f"--output_file={self.output_file}: expected a name in "
                f"{' or '.join(answer_file.ENDINGS)}"
            )
        if self.web:
            raise ValueError("--output_file is for the answers of a task: --web shows its own")
        self.check_answers(self.wanted_task)

    def check_answers(self, task: str | None) -> None:
        """Checks that `output_file` is not given for what has no answers.

        Args:
            task: the name of the task; None if the model determines it, which is asked later.

        Raises:
            ValueError: the task is that of embeddings. The message says where these are written.
        """
        if self.output_file and task == EMBEDDINGS:
            raise ValueError(
                "--output_file is for the answers of a task: similarities are printed, and "
                "embeddings are written to --embeddings_file"
            )

    def _check_input(self) -> None:
        texts, second = self.texts, _listed(self.text_b)
        is_single = bool(self.question or self.context or texts or second)
        if not is_single and not self.input_file:
            raise ValueError(
                "nothing to predict: pass --text, --question and --context, or --input_file "
                f"({STANDARD_INPUT} for standard input)"
            )
        if is_single and self.input_file and not (self.is_search and len(texts) == 1):
            raise ValueError(
                "--input_file: pass either a file or a single input; only --similarity takes one "
                "--text and a file, which it searches for similar texts"
            )
        if second and len(second) != len(texts):
            raise ValueError(
                f"--text is given {len(texts)} times and --text_b {len(second)} times: pass both "
                "for each pair of texts"
            )
        if self.similarity and not self.input_file and not second:
            raise ValueError(
                "--similarity compares two texts: pass the second one as --text_b, or pass "
                "--input_file to search for texts similar to --text"
            )

    @property
    def needs_embeddings(self) -> bool:
        """Whether embeddings are compared, searched or written to a file."""
        return self.similarity or bool(self.embeddings_file)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts given by `text`."""
        return _listed(self.text)

    @property
    def is_search(self) -> bool:
        """Whether the input file is searched for texts similar to `text`."""
        return self.similarity and self.input_file is not None and self.text is not None

    @property
    def pairs(self) -> list[tuple[str, str | None]]:
        """The texts, each with its second text, None if there are none."""
        return list(zip(self.texts, _listed(self.text_b) or [None] * len(self.texts), strict=True))

    @property
    def wanted_task(self) -> str | None:
        """The name of the requested task; None if the model determines it."""
        if self.needs_embeddings:
            return EMBEDDINGS
        return self.task and self.task.lower()

    @property
    def format(self) -> str:
        """The format of the input file."""
        if self.input_format:
            return self.input_format
        return _ENDINGS.get(ending_of(self.input_file or ""), TEXT)

    def check_paths(self) -> None:
        """Checks the paths of model and input, and that files of results can be written."""
        super().check_paths()
        if self.albert_config_file:
            files.check_file(config_file(self.albert_config_file), "--albert_config_file")
        if self.input_file and self.input_file != STANDARD_INPUT:
            files.check_file(self.input_file, "--input_file")
        if self.embeddings_file:
            files.check_writable(os.path.dirname(self.embeddings_file), "--embeddings_file")
        if self.output_file:
            files.check_writable(os.path.dirname(self.output_file), "--output_file")
            if files.real_path(self.output_file) == files.real_path(self.input_file or ""):
                raise ValueError(f"--output_file={self.output_file} is the --input_file")


def _listed(texts: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else texts or ()
