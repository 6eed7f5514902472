"""Settings of the program that creates pre-training data, some of them shared by other programs.

Names and defaults are those of Google's flags.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping

from albert_tf import files
from albert_tf.data.text_formats import INPUT_FORMATS, SENTENCES
from albert_tf.model import objectives
from albert_tf.model.objectives import NONE, NSP, SOP, SentenceObjective, find
from albert_tf.settings import MODEL, REQUIRED, TRAINING, SettingsGroup, derives_values, setting

# What an instance is made of; RoBERTa (arXiv 1907.11692), section 4.2.
SEGMENT_PAIR = "segment_pair"
SENTENCE_PAIR = "sentence_pair"
FULL_SENTENCES = "full_sentences"
DOC_SENTENCES = "doc_sentences"
SPECIAL_TOKENS_PER_PAIR = 3  # [CLS] A [SEP] B [SEP]
PAIR_FORMATS = (SEGMENT_PAIR, SENTENCE_PAIR)
SINGLE_FORMATS = (FULL_SENTENCES, DOC_SENTENCES)
MIN_TARGET = 2  # tokens; the shortest target length of a segment pair
# Tokens; no model has more positions, and arrays of this width fit into memory.
MAX_LENGTH = 1 << 16
MEGABYTE = 1 << 20
# Defaults of albert_zh's program that differ from Google's.
ALBERT_ZH_DEFAULTS = {"max_seq_length": 128, "do_whole_word_mask": False, "dupe_factor": 10}
_MIN_MEGABYTES = 1e-6  # one byte


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputSettings(SettingsGroup):
    """The input files."""

    GROUP = "data"

    input_file: str = setting(
        REQUIRED, "Input files: paths or glob patterns, separated by commas.", takes_several=True
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyFileSettings(SettingsGroup):
    """The vocabulary."""

    GROUP = "data"

    spm_model_file: str | None = setting(
        None,
        "SentencePiece model with the vocabulary; required unless vocab_file is given or there "
        "is one next to the weights.",
    )
    vocab_file: str | None = setting(
        None,
        "WordPiece vocabulary, or a Hugging Face tokenizer.json; used only if there is no "
        "SentencePiece model.",
    )

    def check_paths(self) -> None:
        """Raises an error if the vocabulary file does not exist."""
        super().check_paths()
        if self.spm_model_file:
            files.check_file(self.spm_model_file, "--spm_model_file")
        elif self.vocab_file:
            from albert_tf.model.tokenization import list_files

            for path in list_files(self.vocab_file) or [self.vocab_file]:
                files.check_file(path, "--vocab_file")

    @property
    def vocabulary_file(self) -> str:
        """Path of the vocabulary that is used of the two; "" if none is given."""
        return self.spm_model_file or self.vocab_file or ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(VocabularyFileSettings):
    """The vocabulary and how it is applied to text."""

    GROUP = "data"

    do_lower_case: bool = setting(
        True, "Lower-case the text, as uncased models need it.", affects=MODEL
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceSettings(SettingsGroup):
    """The sequence length."""

    GROUP = "data"

    max_seq_length: int = setting(
        512,
        "Maximum sequence length, in tokens; longer sequences are truncated.",
        minimum=1,
        maximum=MAX_LENGTH,
        affects=TRAINING,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(SettingsGroup):
    """The format of the text files.

    Raises:
        ValueError: split_sentences is set, but the package sentencex is not installed.
    """

    GROUP = "text"

    input_format: str = setting(
        SENTENCES,
        "Format of the text: sentences (one per line, a blank line between documents), documents "
        "(one document per file, one sentence per line), jsonl (one JSON object per line and "
        "document; also Parquet and Arrow files) or wikiextractor (<doc …> to </doc>).",
        choices=INPUT_FORMATS,
    )
    text_field: str = setting(
        "text", "Key of the JSON objects, or column, that holds the text, for input_format=jsonl."
    )
    split_sentences: bool = setting(False, "Split each line, which is a paragraph, into sentences.")
    language: str = setting(
        "en", "Language of the text for split_sentences, as a code such as en or zh."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split_sentences and not importlib.util.find_spec("sentencex"):
            raise ValueError(
                "split_sentences requires sentencex: pip install 'albert-tf2[sentences]'"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskingSettings(SettingsGroup):
    """Which tokens are masked, and how many."""

    GROUP = "masking"

    masked_lm_prob: float = setting(
        0.15,
        "Fraction of the tokens to mask; 0 masks none.",
        minimum=0,
        maximum=1,
        affects=TRAINING,
    )
    max_predictions_per_seq: int = setting(
        20,
        "Maximum number of masked tokens per sequence.",
        minimum=1,
        maximum=MAX_LENGTH,
        affects=TRAINING,
    )
    ngram: int = setting(
        3,
        "Maximum length of a masked n-gram, in words.",
        minimum=1,
        affects=TRAINING,
    )
    favor_shorter_ngram: bool = setting(
        True,
        "Mask n-grams of n words with a probability proportional to 1/n, instead of favoring "
        "longer ones.",
        affects=TRAINING,
    )
    do_whole_word_mask: bool = setting(
        True, "Mask all pieces of a word together.", affects=TRAINING
    )
    do_permutation: bool = setting(
        False,
        "Also permute as many other tokens among their positions, and predict them.",
        affects=TRAINING,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.masked_lm_prob == 1:
            raise ValueError("masked_lm_prob=1.0: expected less than 1")

    @property
    def prediction_slots(self) -> int:
        """P, the width of `masked_lm_positions`; do_permutation doubles the predictions."""
        return self.max_predictions_per_seq * (2 if self.do_permutation else 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceSettings(MaskingSettings, SequenceSettings):
    """How documents are turned into instances.

    Raises:
        ValueError: sequences are too short for a segment pair, or sentence_objective needs pairs
            and instance_format has none.
    """

    GROUP = "instances"

    dupe_factor: int = setting(
        40,
        "Number of passes over the text, each with different segment pairs and masks.",
        minimum=1,
    )
    instance_format: str = setting(
        SEGMENT_PAIR,
        "What an instance consists of: two segments of several sentences (segment_pair), two "
        "sentences (sentence_pair), as many sentences as fit, with a separator between documents "
        "(full_sentences), or the same within one document (doc_sentences); the last two have no "
        "pairs, and need sentence_objective=none, which is their default.",
        choices=(*PAIR_FORMATS, *SINGLE_FORMATS),
    )
    short_seq_prob: float = setting(
        0.1,
        "Probability that the segment pairs of a document in one pass are shorter, with a random "
        "length; 0 makes all of full length.",
        minimum=0,
        maximum=1,
    )
    sentence_objective: str | None = setting(
        None,
        "What is to be learned from segment pairs: whether they are in order or swapped (sop), "
        "whether the second one is random (nsp) or nothing (none); if not given, sop, or none "
        "without pairs.",
        choices=objectives.OBJECTIVES.keys(),  # a view: includes objectives added later
        affects=MODEL,
    )
    random_next_sentence: bool = setting(
        False,
        "Google's flag for sentence_objective=nsp, if that is not given.",
        group="compatibility",
    )
    random_seed: int = setting(
        12345,
        "Random seed; the same seed, text and chunk_megabytes give the same records.",
        minimum=0,
    )
    segment_chinese_words: bool = setting(
        False, "Mask all characters of a Chinese word together, as segmented by jieba."
    )
    albert_zh_compat: bool = setting(
        False,
        "Create instances as albert_zh does, with its defaults: max_seq_length 128, dupe_factor "
        "10, ngram 1, no do_whole_word_mask, segment_chinese_words.",
        group="compatibility",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        smallest = self.num_special_tokens + MIN_TARGET
        if self.max_seq_length < smallest:
            raise ValueError(
                f"max_seq_length={self.max_seq_length}: expected {smallest} or more, for "
                f"{self.num_special_tokens} special tokens and {MIN_TARGET} others"
            )
        if not self.has_pairs and self.objective != find(NONE):
            raise ValueError(
                f"sentence_objective={self.objective.abbreviation!r} needs pairs, which "
                f"instance_format={self.instance_format!r} does not have: expected {NONE!r}, or "
                f"instance_format={' or '.join(PAIR_FORMATS)}"
            )

    @property
    def objective(self) -> SentenceObjective:
        """The sentence objective that the records are for."""
        default = SOP if self.has_pairs else NONE
        return find(self.sentence_objective or (NSP if self.random_next_sentence else default))

    @property
    def has_pairs(self) -> bool:
        """Whether an instance has two segments."""
        return self.instance_format in PAIR_FORMATS

    @property
    def num_special_tokens(self) -> int:
        """Number of tokens of an instance that are not from the text, without separators in it."""
        return SPECIAL_TOKENS_PER_PAIR - (not self.has_pairs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodingSettings(InstanceSettings, TextSettings, VocabularySettings):
    """All settings that determine the records made from a chunk of text."""

    GROUP = "instances"

    non_chinese: bool = setting(
        False,
        "albert_zh's flag for other languages, which disables segment_chinese_words.",
        group="compatibility",
    )


@derives_values
@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(EncodingSettings, InputSettings):
    """Settings of create_pretraining_data.py."""

    GROUP = "output and resources"
    ESSENTIAL = (
        "input_file",
        "output_file",
        "spm_model_file",
        "vocab_file",
        "do_lower_case",
        "max_seq_length",
        "max_predictions_per_seq",
        "dupe_factor",
        "segment_chinese_words",
        "num_workers",
    )

    output_file: str = setting(
        REQUIRED,
        "TFRecord files to write: paths separated by commas, or path@64 for 64 files.",
        takes_several=True,
    )
    resume: bool = setting(
        False,
        "Keep complete output files of the same text and settings, instead of writing them "
        "again; an interrupted run is resumed in any case.",
    )
    work_dir: str = setting("", "Folder for unfinished work; if empty, one next to output_file.")
    num_workers: int | None = setting(
        None, "Number of processes; if not given, one per core.", minimum=1, is_optional=True
    )
    chunk_megabytes: float = setting(
        1.0,
        "Size of the text that a process works on at a time, in megabytes.",
        minimum=_MIN_MEGABYTES,
    )
    shuffle_megabytes: float = setting(
        64.0, "Size of the shuffle buffer of each process, in megabytes.", minimum=_MIN_MEGABYTES
    )
    num_logged_instances: int = setting(
        20, "Number of instances to log as examples; 0 logs none.", minimum=0
    )
    runner: str = setting(
        "",
        "Apache Beam runner to use, such as DirectRunner or DaskRunner, or the full "
        "name of its class; if empty, local processes without Beam.",
    )
    beam_pipeline_options: tuple[str, ...] = setting(
        (), "Options of the Beam runner as name=value, separated by commas; used only with runner."
    )

    @classmethod
    def with_derived_values(cls, values: Mapping[str, object]) -> dict[str, object]:
        """Returns `values` with albert_zh's defaults added if `albert_zh_compat` is set.

        With `non_chinese`, `segment_chinese_words` is turned off.

        Args:
            values: field name → value.
        """
        values = dict(values)
        if values.get("albert_zh_compat"):
            values = ALBERT_ZH_DEFAULTS | {"ngram": 1, "segment_chinese_words": True} | values
        if values.get("non_chinese"):
            values["segment_chinese_words"] = False
        return values

    @property
    def chunk_bytes(self) -> int:
        """`chunk_megabytes` in bytes."""
        return int(self.chunk_megabytes * MEGABYTE)

    @property
    def shuffle_bytes(self) -> int:
        """`shuffle_megabytes` in bytes."""
        return int(self.shuffle_megabytes * MEGABYTE)
