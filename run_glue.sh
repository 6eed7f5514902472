#!/usr/bin/env bash
# Runs scripts/run_glue.sh, at its location in google-research/albert. See the usage there.
exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/run_glue.sh" "$@"
