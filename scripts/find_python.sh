# Sourced by the other scripts. Unless PYTHON is set, sets it to $root/.venv/bin/python if that
# exists, else to python3.
if [[ -z ${PYTHON:-} ]]; then
  PYTHON=python3
  if [[ -x $root/.venv/bin/python ]]; then
    PYTHON=$root/.venv/bin/python
  fi
fi
