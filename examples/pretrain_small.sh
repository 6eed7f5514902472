#!/usr/bin/env bash
# Pre-trains a small English ALBERT on two cores, from a corpus to its evaluation, without a download.
#
#   bash examples/pretrain_small.sh [flags of run_pretraining.py]
#
# Collects the documentation of the installed packages (examples/make_corpus.py --source=packages),
# trains a vocabulary, writes records, pre-trains with configs/recipes/pretrain_small.flags,
# evaluates every checkpoint on held-out packages, and compares the result with the best constant
# answers.
# Arguments override the recipe: --num_train_steps=500 takes seven minutes.
#
# WORK_DIR      folder for all files; default: work/pretrain_small
# CORPUS_DIR    folder with train.txt and held_out.txt; by default, they are made in WORK_DIR
# VOCAB_SIZE    pieces of the vocabulary; default: 8000. Another number needs --albert_config_file
# MAX_SEQ_LENGTH, MAX_PREDICTIONS_PER_SEQ, DUPE_FACTOR    of the records; default: 96, 14, 20
# PYTHON        interpreter; default: .venv/bin/python if it exists, else python3
#
# Running the same command again resumes an interrupted run: finished files are kept, records are
# checked against their text and settings, and training continues from its last checkpoint.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}
work=${WORK_DIR:-work/pretrain_small}
corpus=${CORPUS_DIR:-$work/corpus}
length=${MAX_SEQ_LENGTH:-96}
predictions=${MAX_PREDICTIONS_PER_SEQ:-14}

for argument in "$@"; do
  if [[ $argument =~ ^--?(input_file|eval_input_file|output_dir|max_seq_length|max_predictions_per_seq)(=|$) ]]; then
    echo "$0: $argument: the other stages need this value too. Set WORK_DIR, MAX_SEQ_LENGTH or" \
      "MAX_PREDICTIONS_PER_SEQ in the environment instead" >&2
    exit 2
  fi
done
mkdir -p "$work"

run() {
  echo "+ $*"
  "$PYTHON" "$@"
}

# The last file that make_corpus.py writes; a corpus of one's own comes without this task.
if [[ -z ${CORPUS_DIR:-} && ! -f $work/package_task/dev.tsv ]]; then
  run "$root/examples/make_corpus.py" --source=packages --corpus_dir="$corpus" \
    --task_dir="$work/package_task"
fi
if [[ ! -f $work/vocabulary.model || ! -f $work/vocabulary.vocab ]]; then
  PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} run -m albert_tf train-vocabulary --input_file="$corpus/train.txt" \
    --vocab_size="${VOCAB_SIZE:-8000}" --output_prefix="$work/vocabulary" --overwrite
fi
for part in train held_out; do
  dupe_factor=5
  if [[ $part == train ]]; then
    dupe_factor=${DUPE_FACTOR:-20}
  fi
  run "$root/create_pretraining_data.py" --input_file="$corpus/$part.txt" \
    --output_file="$work/$part.tfrecord" --vocab_file="$work/vocabulary.vocab" \
    --spm_model_file="$work/vocabulary.model" --max_seq_length="$length" \
    --max_predictions_per_seq="$predictions" --dupe_factor="$dupe_factor" \
    --num_logged_instances=0 --resume
done
run "$root/run_pretraining.py" --flagfile="$root/configs/recipes/pretrain_small.flags" \
  --albert_config_file="$root/configs/albert_small_en.json" \
  --input_file="$work/train.tfrecord" --eval_input_file="$work/held_out.tfrecord" \
  --output_dir="$work/model" --max_seq_length="$length" --max_predictions_per_seq="$predictions" "$@"
run "$root/examples/pretraining_report.py" --output_dir="$work/model" \
  --eval_input_file="$work/held_out.tfrecord" --plot_file="$work/learning_curve.png"
