#!/usr/bin/env bash
# Runs create_pretrain_data.sh of the root folder, and writes to ./data, where albert_zh's commands read.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$here/data"
exec bash "$here/../../create_pretrain_data.sh" --output_file="$here/data/tf_sample_zh.tfrecord" "$@"
