# For the other scripts, which source it: sets PYTHON, unless the environment does, to the
# interpreter of .venv in the folder $root, or to python3.
if [[ -z ${PYTHON:-} ]]; then
  PYTHON=python3
  if [[ -x $root/.venv/bin/python ]]; then
    PYTHON=$root/.venv/bin/python
  fi
fi
