#!/usr/bin/env bash
# Creates Chinese pre-training records with albert_zh's settings: whole-word masking, with words
# segmented by jieba.
#
#   bash create_pretrain_data.sh
#
# converts the sample data/sample_zh.txt to data/tf_sample_zh.tfrecord. If no vocabulary is given, it
# first trains one on the sample, data/vocab_sample_zh.txt. For other text:
#
#   bash create_pretrain_data.sh --vocab_file=vocab.txt --input_file='text/*.txt' \
#       --output_file=records.tfrecord
#
# The vocabulary can also be set by the environment variables VOCAB_FILE and SPM_MODEL_FILE (a
# SentencePiece model). Arguments are passed to create_pretraining_data.py and override the settings
# here. PYTHON sets the interpreter; default: .venv/bin/python if it exists, else python3.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${PYTHON:-$([[ -x $root/.venv/bin/python ]] && echo "$root/.venv/bin/python" || echo python3)}

own_vocabulary=false
own_input=false
case_flags=()
for argument in "$@"; do
  case $argument in
    --help | --helpfull | --helpshort | -h | "-?")
      exec "$PYTHON" "$root/create_pretraining_data.py" "$argument" ;;
    --vocab_file | --vocab_file=?* | --spm_model_file | --spm_model_file=?*) own_vocabulary=true ;;
    --input_file | --input_file=*) own_input=true ;;
    --do_lower_case | --do_lower_case=* | --nodo_lower_case) case_flags+=("$argument") ;;
  esac
done

vocabulary=()
if [[ $own_vocabulary == false ]]; then
  if [[ -n ${VOCAB_FILE:-} || -n ${SPM_MODEL_FILE:-} ]]; then
    vocabulary=("--vocab_file=${VOCAB_FILE:-}" "--spm_model_file=${SPM_MODEL_FILE:-}")
  elif [[ $own_input == true ]]; then
    echo "create_pretrain_data.sh: --input_file requires a vocabulary: set --vocab_file or" \
      "--spm_model_file, or train one with albert train-vocabulary" >&2
    exit 1
  else
    echo "No vocabulary given (--vocab_file, VOCAB_FILE): training one on the sample."
    PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" -m albert_tf train-vocabulary \
      --type=wordpiece \
      --input_file="$root/data/sample_zh.txt" \
      --output_prefix="$root/data/vocab_sample_zh" \
      --vocab_size=21128 \
      --character_coverage=1.0 \
      --overwrite \
      ${case_flags[@]+"${case_flags[@]}"}
    vocabulary=("--vocab_file=$root/data/vocab_sample_zh.txt")
  fi
fi

# Expanded in this way because bash before 4.4 treats empty arrays as unset.
exec "$PYTHON" "$root/create_pretraining_data.py" \
  --input_file="$root/data/sample_zh.txt" \
  --output_file="$root/data/tf_sample_zh.tfrecord" \
  --do_lower_case=True \
  --do_whole_word_mask=True \
  --segment_chinese_words=True \
  --ngram=1 \
  --max_seq_length=512 \
  --max_predictions_per_seq=51 \
  --masked_lm_prob=0.10 \
  --dupe_factor=10 \
  --num_logged_instances=0 \
  ${vocabulary[@]+"${vocabulary[@]}"} \
  "$@"
