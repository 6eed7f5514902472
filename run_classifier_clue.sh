#!/usr/bin/env bash
# Runs scripts/run_classifier_clue.sh, at its location in albert_zh. See the usage there.
exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/run_classifier_clue.sh" "$@"
