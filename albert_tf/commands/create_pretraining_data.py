r"""Creates pre-training records from text: one sentence per line, blank lines between documents.

English, with a SentencePiece model:

    python create_pretraining_data.py --input_file=corpus/*.txt --output_file=records/train@8 \
        --spm_model_file=30k-clean.model --vocab_file=30k-clean.vocab --dupe_factor=10

Chinese, with a WordPiece vocabulary:

    python create_pretraining_data.py --input_file=news.txt --output_file=news.tfrecord \
        --vocab_file=vocab_chinese.txt --max_predictions_per_seq=76

Writes the record files (records/train-00000-of-00008, ...) and records/train.records.json, which
describes them. Run the same command again to resume an interrupted run; with --resume, outputs that
are already complete are kept as well. For other kinds of text, use --input_format (JSON lines, or
one document per file) or --split_sentences (paragraphs).
"""

from albert_tf import data
from albert_tf.cli import program


def main() -> None:
    """Runs the command line of this process."""
    program.start(data.Settings, data.run, __doc__)


if __name__ == "__main__":
    main()
