r"""Makes pre-training records from text: one sentence a line, a blank line between documents.

English, with a SentencePiece model:

    python create_pretraining_data.py --input_file=corpus/*.txt --output_file=records/train@8 \
        --spm_model_file=30k-clean.model --vocab_file=30k-clean.vocab --dupe_factor=10

Chinese, with a WordPiece vocabulary:

    python create_pretraining_data.py --input_file=news.txt --output_file=news.tfrecord \
        --vocab_file=vocab_chinese.txt --max_predictions_per_seq=76

Writes the record files (records/train-00000-of-00008, ...), and records/train.records.json, which
says what they hold. The same command with --resume goes on after an interruption. Other text:
--input_format for JSON lines or a document a file, --split_sentences for paragraphs.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from absl import flags

from albert_tf import files
from albert_tf.cli import flag_groups, program
from albert_tf.data.beam import with_beam
from albert_tf.data.create import Resources, create_pretraining_data, log_instances
from albert_tf.data.encoding import Vocabulary
from albert_tf.data.instances import InstanceSettings
from albert_tf.data.masking import MaskingSettings
from albert_tf.data.records import Outputs
from albert_tf.data.text_formats import INPUT_FORMATS, TextSettings

FLAGS = flags.FLAGS
ALBERT_ZH_DEFAULTS = dict(max_seq_length=128, do_whole_word_mask=False, dupe_factor=10, ngram=1)

flag_groups.define_input_flags()
flags.DEFINE_string("output_file", None, "Record files: a comma list of names, or name@64.")
flags.DEFINE_string("vocab_file", None, "WordPiece vocabulary, or the .vocab of the model.")
flags.DEFINE_string("spm_model_file", None, "SentencePiece model.")
flags.DEFINE_string("input_file_mode", "r", "Accepted for old command lines; has no effect.")
flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; for uncased models.")
flags.DEFINE_bool("do_whole_word_mask", True, "Mask all pieces of a word together.")
flags.DEFINE_bool("do_permutation", False, "Also permute as many tokens as are masked.")
flags.DEFINE_bool("favor_shorter_ngram", True, "Mask short n-grams more often than long ones.")
flags.DEFINE_bool("random_next_sentence", False, "BERT's task: B from a random document.")
flags.DEFINE_integer("ngram", 3, "The most words that are masked in one stretch.", lower_bound=1)
flags.DEFINE_integer("random_seed", 12345, "The same seed gives the same records.", lower_bound=0)
flags.DEFINE_integer("dupe_factor", 40, "Passes over the text, each masked differently.")
flags.DEFINE_float("masked_lm_prob", 0.15, "Share of masked tokens; 0 for masking in training.")
flags.DEFINE_float("short_seq_prob", 0.1, "Share of documents cut to a random shorter length.")

flags.DEFINE_enum("input_format", "sentences", INPUT_FORMATS, "Or a file each, or JSON lines.")
flags.DEFINE_string("text_field", "text", "With jsonl: the field that holds the text.")
flags.DEFINE_bool("split_sentences", False, "Lines are paragraphs: split them into sentences.")
flags.DEFINE_string("language", "en", "For --split_sentences: language of the text (en, zh, ...).")
flags.DEFINE_bool("segment_chinese_words", False, "Mask Chinese words, found by jieba, together.")
flags.DEFINE_bool("albert_zh_compat", False, "Make records as albert_zh, with its defaults.")
flags.DEFINE_bool("non_chinese", False, "With --albert_zh_compat: no Chinese words.")
flag_groups.define_run_flags(num_workers=0)
flags.DEFINE_enum("compression", "", ["", "gzip"], "Compression of the record files.")
flags.DEFINE_bool("resume", False, "Go on where an interrupted run stopped.")
flags.DEFINE_string("work_dir", "", "Where unfinished work is kept; default: beside the output.")
flags.DEFINE_float("chunk_megabytes", 1, "Text that one process works on at a time.")
flags.DEFINE_float("shuffle_megabytes", 64, "Records that one process shuffles at a time.")
flags.DEFINE_string(
    "runner", "", "Use Apache Beam with this runner: DirectRunner, DataflowRunner..."
)
flags.DEFINE_list("beam_pipeline_options", [], "For the runner: name=value,name=value,...")
flags.DEFINE_integer("num_logged_instances", 20, "Finished instances to log.", lower_bound=0)

flags.mark_flag_as_required("output_file")


def values(settings: type) -> dict[str, Any]:
    """The flags that are named as the fields of a settings class."""
    names = [field.name for field in dataclasses.fields(settings) if field.name in FLAGS]
    return {name: FLAGS[name].value for name in names}


def instance_settings() -> InstanceSettings:
    """How to make instances, from the flags."""
    if FLAGS.albert_zh_compat:
        for name, value in ALBERT_ZH_DEFAULTS.items():
            FLAGS.set_default(name, value)
        FLAGS.set_default("segment_chinese_words", not FLAGS.non_chinese)
    masking = MaskingSettings(**values(MaskingSettings))
    return InstanceSettings(masking=masking, **values(InstanceSettings))


def resources() -> Resources:
    """What may be used, from the flags."""
    return Resources(
        chunk_bytes=int(FLAGS.chunk_megabytes * (1 << 20)),
        shuffle_bytes=int(FLAGS.shuffle_megabytes * (1 << 20)),
        **values(Resources),
    )


def main(_: list[str]) -> None:
    """Makes the records that the flags ask for."""
    vocabulary = Vocabulary(FLAGS.vocab_file, FLAGS.spm_model_file, FLAGS.do_lower_case)
    try:
        settings = instance_settings()
        outputs = Outputs.parse(FLAGS.output_file, FLAGS.compression)
        input_files = files.expand_patterns(FLAGS.input_file, "--input_file")
        args = (input_files, outputs, vocabulary, settings, resources())
        options = FLAGS.beam_pipeline_options
        create = with_beam(FLAGS.runner, options) if FLAGS.runner else create_pretraining_data
        metadata = create(*args, TextSettings(**values(TextSettings)))
        log_instances(outputs.paths, vocabulary, FLAGS.num_logged_instances)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command with --resume goes on")
    print(f"{metadata['counts']['instances']} instances in {len(metadata['files'])} files")


if __name__ == "__main__":
    program.run(main)
