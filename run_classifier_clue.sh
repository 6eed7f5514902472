#!/usr/bin/env bash
# albert_zh's place of scripts/run_classifier_clue.sh, whose first lines say how to call it.
exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/run_classifier_clue.sh" "$@"
