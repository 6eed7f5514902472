"""What the scripts share: flags, the config in the output folder, errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from albert_tf.cli import program
from albert_tf.config import AlbertConfig
from tests.conftest import ROOT


def write_config(path, **changes):
    shape = {"vocab_size": 97, "hidden_size": 12, "num_attention_heads": 4} | changes
    AlbertConfig(**shape).to_json_file(str(path))
    return str(path)


def test_the_config_is_kept_in_the_output_folder(tmp_path):
    path = write_config(tmp_path / "a.json")
    output_dir = tmp_path / "deep" / "model"
    config = program.read_config(str(output_dir), path)
    assert AlbertConfig.from_json_file(str(output_dir / "albert_config.json")) == config
    assert program.read_config(str(output_dir), path) == config


def test_the_folder_of_another_model_is_refused(tmp_path):
    program.read_config(str(tmp_path / "model"), write_config(tmp_path / "a.json"))
    other = write_config(tmp_path / "b.json", hidden_size=16)
    with pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, 16 in .*b\.j"):
        program.read_config(str(tmp_path / "model"), other)


def test_an_output_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    path = write_config(tmp_path / "a.json")
    with pytest.raises(ValueError, match="--output_dir: cannot write into"):
        program.read_config(str(tmp_path / "file" / "model"), path)


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "run_pretraining.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_errors_are_one_line_and_end_with_status_1(tmp_path):
    flags = ["--input_file=x", f"--output_dir={tmp_path}/out", "--albert_config_file=none.json"]
    result = run_script(*flags)
    assert result.returncode == 1
    assert result.stderr.startswith("run_pretraining.py: none.json: no such file")
    assert "Traceback" not in result.stderr
    assert "Traceback" in run_script(*flags, "--verbosity=1").stderr


def test_help_lists_all_flags_and_needs_no_tensorflow():
    result = run_script("--help")
    for name in ("albert_config_file", "init_checkpoint", "seed", "use_tpu", "poly_power"):
        assert f"--{name}" in result.stdout or f"--[no]{name}" in result.stdout
    code = (
        "import sys, runpy; sys.argv = ['x']; runpy.run_path('run_pretraining.py', run_name='x');"
    )
    code += "sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_words_that_are_no_flags_are_refused():
    result = run_script("--input_file=x", "--output_dir=y", "--albert_config_file=z", "do_train")
    assert result.returncode != 0
    assert "'do_train' is no flag" in result.stderr + result.stdout
