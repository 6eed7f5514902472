"""run_pretraining.py with the flags of Google's and albert_zh's command lines."""

from __future__ import annotations

import pytest
from absl import flags as absl_flags

from albert_tf import pretraining
from albert_tf.cli import flags

NEEDED = ["--input_file=records", "--output_dir=out"]


def test_albert_zhs_spellings_are_accepted():
    settings = flags.parse(
        pretraining.Settings,
        [
            *NEEDED,
            "--bert_config_file=c.json",
            "--do_train=True",
            "--do_eval=True",
            "--export_dir=x",
            "--master=",
            "--num_tpu_cores=8",
            "--iterations_per_loop=2",
        ],
    )
    assert settings.albert_config_file == "c.json"
    assert settings.do_train
    assert settings.do_eval


def test_a_config_is_required():
    with pytest.raises(absl_flags.Error, match="albert_config_file"):
        flags.parse(pretraining.Settings, NEEDED)
