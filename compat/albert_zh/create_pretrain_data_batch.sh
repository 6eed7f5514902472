#!/usr/bin/env bash
# Creates Chinese pre-training records from numbered text files, with the settings of albert_zh.
#
#   bash create_pretrain_data_batch.sh START END
#
# processes the files numbered START to END, inclusive, one after the other. Patterns in environment
# variables specify the files; {} stands for the number:
#
#   INPUT_PATTERN='text/news_{}.txt' OUTPUT_PATTERN='records/news_{}.tfrecord' \
#   VOCAB_FILE=vocab_chinese.txt bash create_pretrain_data_batch.sh 0 9
#
# INPUT_PATTERN   text files; default: raw_text/web_text_zh_{}.txt
# OUTPUT_PATTERN  record files; default: tf_records/tf_web_text_zh_{}.tfrecord
# VOCAB_FILE      WordPiece vocabulary; default: albert_config/vocab.txt
# PYTHON          interpreter; default: .venv/bin/python if it exists, else python3
#
# Arguments after END are passed to create_pretraining_data.py and override the settings here.
# Running the same command again resumes an interrupted run, skips complete files, and recreates files
# whose text has changed. If the settings have changed, add --noresume to recreate all files.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
number='^(0|[1-9][0-9]*)$'
if [[ $# -lt 2 || ! $1 =~ $number || ! $2 =~ $number || $1 -gt $2 ]]; then
  echo "usage: $(basename "$0") START END [flags of create_pretraining_data.py], for example 0 9" >&2
  exit 2
fi
start=$1
end=$2
shift 2

input_pattern=${INPUT_PATTERN:-raw_text/web_text_zh_\{\}.txt}
output_pattern=${OUTPUT_PATTERN:-tf_records/tf_web_text_zh_\{\}.tfrecord}
for pattern in "$input_pattern" "$output_pattern"; do
  if [[ $pattern != *"{}"* && $start != "$end" ]]; then
    echo "create_pretrain_data_batch.sh: $pattern: expected {} in place of the number" >&2
    exit 2
  fi
done
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}

for ((file = start; file <= end; file++)); do
  echo "file $file of $start to $end"
  "$PYTHON" "$root/create_pretraining_data.py" \
    --input_file="${input_pattern//"{}"/$file}" \
    --output_file="${output_pattern//"{}"/$file}" \
    --vocab_file="${VOCAB_FILE:-albert_config/vocab.txt}" \
    --do_lower_case=True \
    --do_whole_word_mask=True \
    --segment_chinese_words=True \
    --ngram=1 \
    --max_seq_length=512 \
    --max_predictions_per_seq=76 \
    --masked_lm_prob=0.15 \
    --dupe_factor=10 \
    --num_logged_instances=0 \
    --resume \
    "$@"
done
