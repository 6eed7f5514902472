#!/usr/bin/env bash
# Fine-tunes ALBERT on GLUE tasks with Google's settings, evaluates and predicts.
#
#   ALBERT_ROOT=albert bash run_glue.sh [TASK ...] [flags of run_classifier.py]
#
# ALBERT_ROOT is a folder with the released model (albert_config.json, 30k-clean.model,
# model.ckpt-best) and with glue/, which has a folder for each task (CoLA, MNLI and so on). TASK is
# cola, mnli, mrpc, qnli, qqp, rte, sst-2 or sts-b; by default, all tasks are run one after the other.
# The MNLI model is also evaluated on the mismatched dev set, and predicts GLUE's diagnostic set.
# Further arguments are passed to run_classifier.py and override the settings in
# configs/recipes/glue_*.flags.
#
# OUTPUT_DIR   output folder, with a subfolder for each task; default: $ALBERT_ROOT/output
# PYTHON       interpreter; default: .venv/bin/python if it exists, else python3
#
# Running the same command again resumes an interrupted run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
every=(cola mnli mrpc qnli qqp rte sst-2 sts-b)
tasks=()
while [[ $# -gt 0 && $1 != -* ]]; do
  if [[ ! -f $root/configs/recipes/glue_$1.flags ]]; then
    echo "run_glue.sh: $1: expected one of ${every[*]}" >&2
    exit 2
  fi
  tasks+=("$1")
  shift
done
if [[ -z ${ALBERT_ROOT:-} || ! -d ${ALBERT_ROOT:-}/glue ]]; then
  echo "run_glue.sh: ALBERT_ROOT=${ALBERT_ROOT:-}: expected a folder with glue/ and the model" >&2
  exit 2
fi
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}
output=${OUTPUT_DIR:-$ALBERT_ROOT/output}

run() {
  recipe=$1
  shift
  "$PYTHON" "$root/run_classifier.py" \
    --flagfile="$root/configs/recipes/glue_$recipe.flags" \
    --data_dir="$ALBERT_ROOT/glue" \
    --albert_config_file="$ALBERT_ROOT/albert_config.json" \
    --spm_model_file="$ALBERT_ROOT/30k-clean.model" \
    "$@"
}

if [[ ${#tasks[@]} -eq 0 ]]; then
  tasks=("${every[@]}")
fi
for task in "${tasks[@]}"; do
  run "$task" --init_checkpoint="$ALBERT_ROOT/model.ckpt-best" --output_dir="$output/$task" "$@"
  if [[ $task == mnli ]]; then
    trained=(--nodo_train --init_checkpoint="$output/mnli/model.ckpt-best")
    run mnli "$@" --task_name=mismnli --output_dir="$output/mismnli" "${trained[@]}"
    run mnli "$@" --task_name=ax --nodo_eval --output_dir="$output/ax" "${trained[@]}"
  fi
done
