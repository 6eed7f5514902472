#!/usr/bin/env bash
# Fine-tunes a Chinese ALBERT on LCQMC with albert_zh's settings, evaluates and predicts.
#
#   DATA_DIR=lcqmc MODEL_DIR=albert_tiny bash run_classifier_lcqmc.sh
#
# Arguments are passed to run_classifier.py and override the settings in
# configs/recipes/lcqmc_tiny.flags. Data and model are not downloaded: LCQMC is available from its
# authors on request, and the model is albert_tiny_489k.zip of brightmart/albert_zh.
#
# DATA_DIR     folder with train.txt, dev.txt and test.txt; default: lcqmc
# MODEL_DIR    folder with albert_config_tiny.json, vocab.txt, albert_model.ckpt; default: albert_tiny
# OUTPUT_DIR   output folder; default: lcqmc_tiny
# PYTHON       interpreter; default: .venv/bin/python if it exists, else python3
#
# Running the same command again resumes an interrupted run.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}
model=${MODEL_DIR:-albert_tiny}
exec "$PYTHON" "$root/run_classifier.py" \
  --flagfile="$root/configs/recipes/lcqmc_tiny.flags" \
  --data_dir="${DATA_DIR:-lcqmc}" \
  --albert_config_file="$model/albert_config_tiny.json" \
  --vocab_file="$model/vocab.txt" \
  --init_checkpoint="$model/albert_model.ckpt" \
  --output_dir="${OUTPUT_DIR:-lcqmc_tiny}" \
  "$@"
