#!/usr/bin/env bash
# Fine-tunes a Chinese ALBERT on LCQMC with albert_zh's settings, evaluates and predicts.
#
#   DATA_DIR=lcqmc MODEL_DIR=albert_tiny bash scripts/run_classifier_lcqmc.sh
#
# Every argument goes to run_classifier.py and overrides the settings, which are in
# configs/recipes/lcqmc_tiny.flags. Nothing is downloaded: LCQMC is given to those who ask its
# authors, the model is albert_tiny_489k.zip of brightmart/albert_zh.
#
# DATA_DIR     has train.txt, dev.txt and test.txt; default lcqmc
# MODEL_DIR    has albert_config_tiny.json, vocab.txt and albert_model.ckpt; default albert_tiny
# OUTPUT_DIR   default lcqmc_tiny
# PYTHON       interpreter; default that of .venv, or python3
#
# Called again it goes on where it stopped.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/find_python.sh"
model=${MODEL_DIR:-albert_tiny}
exec "$PYTHON" "$root/run_classifier.py" \
  --flagfile="$root/configs/recipes/lcqmc_tiny.flags" \
  --data_dir="${DATA_DIR:-lcqmc}" \
  --albert_config_file="$model/albert_config_tiny.json" \
  --vocab_file="$model/vocab.txt" \
  --init_checkpoint="$model/albert_model.ckpt" \
  --output_dir="${OUTPUT_DIR:-lcqmc_tiny}" \
  "$@"
