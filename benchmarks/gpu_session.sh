#!/usr/bin/env bash
# Measures and trains on a machine with a GPU and JAX in a limited time, without TensorFlow.
#
#   bash benchmarks/gpu_session.sh gpu_kit training_kit results
#
# The kits are those of make_gpu_kit.py and make_training_kit.py. What matters most comes first: the
# programs of the GPU kit in their order, then training. Each part ends by itself in its time, and is
# ended if it has not a minute later; if one fails, the other runs all the same, and the exit status
# is 1. Results are JSON lines, so that a session that is cut off leaves what it has measured:
#
#   results/measured.jsonl    of run_gpu_kit.py
#   results/training.jsonl    of train_gpu_kit.py, and results/trained, what make_training_kit.py takes
#
# MEASURE_SECONDS, TRAIN_SECONDS    time of a part; default: 270 and 480. 0 leaves it out
# PYTHON                            interpreter with JAX; default: python3
set -uo pipefail

if [[ $# -ne 3 ]]; then
  echo "usage: bash $0 gpu_kit training_kit results" >&2
  exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PYTHON=${PYTHON:-python3}
gpu_kit=$1 training_kit=$2 results=$3
mkdir -p "$results" || exit 1
status=0

# run SECONDS FILE PROGRAM ARGUMENT...: runs a part, and keeps what it prints in a file
run() {
  local seconds=$1 file=$results/$2
  shift 2
  if [[ $seconds -eq 0 ]]; then
    return
  fi
  timeout --kill-after=10 $((seconds + 60)) "$PYTHON" "$here/$1" "${@:2}" --seconds="$seconds" \
    | tee "$file"
  local ended=${PIPESTATUS[0]}
  if [[ $ended -ne 0 ]]; then
    echo "{\"program\": \"$1\", \"error\": \"it ended with status $ended\"}" | tee -a "$file"
    status=1
  fi
}

run "${MEASURE_SECONDS:-270}" measured.jsonl run_gpu_kit.py "$gpu_kit"
run "${TRAIN_SECONDS:-480}" training.jsonl train_gpu_kit.py "$training_kit" "$results/trained"
exit "$status"
