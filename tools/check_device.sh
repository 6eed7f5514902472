#!/usr/bin/env bash
# Checks a GPU, TPU or CPU in ten minutes; see albert_tf/commands/check_device.py.
#
#   bash tools/check_device.sh --device=gpu | tee check.md
#
# PYTHON sets the interpreter; default: .venv/bin/python if it exists, else python3.
# ALBERT_PEER_PYTHON sets the interpreter that has PyTorch and transformers, to compare with.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/find_python.sh"
exec "$PYTHON" "$root/tools/check_device.py" "$@"
