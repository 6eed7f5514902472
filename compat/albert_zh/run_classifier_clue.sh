#!/usr/bin/env bash
# Fine-tunes a Chinese ALBERT on CLUE tasks with albert_zh's settings, evaluates and predicts.
#
#   DATA_DIR=clue MODEL_DIR=albert_tiny bash run_classifier_clue.sh [TASK ...] [flags]
#
# TASK is afqmc, cmnli, csl, iflytek, tnews or wsc; by default, all tasks are run one after the other.
# Further arguments are passed to run_classifier.py and override the settings in
# configs/recipes/clue_*.flags. Data and model are not downloaded: download <task>_public.zip of
# CLUEbenchmark/CLUE and albert_tiny_489k.zip of brightmart/albert_zh.
# Predictions for the leaderboard are written to <task>_predict.json.
#
# DATA_DIR     folder that contains <task>/train.json, dev.json and test.json; default: clue
# MODEL_DIR    folder with albert_config_tiny.json, vocab.txt, albert_model.ckpt; default: albert_tiny
# OUTPUT_DIR   output folder of a single task; default: clue_<task>
# PYTHON       interpreter; default: .venv/bin/python if it exists, else python3
#
# Running the same command again resumes an interrupted run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
every=(afqmc cmnli csl iflytek tnews wsc)
tasks=()
while [[ $# -gt 0 && $1 != -* ]]; do
  if [[ ! -f $root/configs/recipes/clue_$1.flags ]]; then
    echo "run_classifier_clue.sh: $1: expected one of ${every[*]}" >&2
    exit 2
  fi
  tasks+=("$1")
  shift
done
if [[ ${#tasks[@]} -eq 0 ]]; then
  tasks=("${every[@]}")
fi
if [[ ${#tasks[@]} -gt 1 && -n ${OUTPUT_DIR:-} ]]; then
  echo "run_classifier_clue.sh: OUTPUT_DIR=$OUTPUT_DIR requires a single TASK; name one, or unset it" >&2
  exit 2
fi
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}
model=${MODEL_DIR:-albert_tiny}
for task in "${tasks[@]}"; do
  "$PYTHON" "$root/run_classifier.py" \
    --flagfile="$root/configs/recipes/clue_$task.flags" \
    --data_dir="${DATA_DIR:-clue}" \
    --albert_config_file="$model/albert_config_tiny.json" \
    --vocab_file="$model/vocab.txt" \
    --init_checkpoint="$model/albert_model.ckpt" \
    --output_dir="${OUTPUT_DIR:-clue_$task}" \
    "$@"
done
