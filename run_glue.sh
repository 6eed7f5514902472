#!/usr/bin/env bash
# google-research/albert's place of scripts/run_glue.sh, whose first lines say how to call it.
exec bash "$(dirname "${BASH_SOURCE[0]}")/scripts/run_glue.sh" "$@"
