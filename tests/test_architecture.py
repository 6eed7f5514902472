"""What importing the package costs, and its public names."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import albert_tf
from tests.conftest import ROOT, needs_text

WITHOUT_TENSORFLOW = (
    *("files", "settings", "version", "data.create", "cli.programs", "finetuning.registry"),
    *("model.config", "model.objectives"),
    *("model.tokenization", "tensorflow_packages", "training.settings", "inference"),
)


def test_data_tokenizers_and_the_command_line_start_without_tensorflow():
    code = (
        f"import sys, albert_tf, {', '.join(f'albert_tf.{name}' for name in WITHOUT_TENSORFLOW)}\n"
        "for program in albert_tf.cli.programs.PROGRAMS.values(): program.load()\n"
        "heavy = {'tensorflow', 'tf_keras', 'keras', 'tensorflow_text', 'official', 'fsspec'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@needs_text
def test_the_public_names_are_found_on_first_use():
    tree = ast.parse((ROOT / "albert_tf" / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    of_type_checkers = {alias.asname for node in imports for alias in node.names} - {None}
    assert set(dir(albert_tf)) == set(albert_tf.__all__) == of_type_checkers
    for name in albert_tf.__all__:
        assert getattr(albert_tf, name) is not None
    with pytest.raises(AttributeError, match="Did you mean 'load_predictor'"):
        albert_tf.load_predicter  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'qqq'$"):
        albert_tf.qqq  # noqa: B018
