"""The recipes have the published settings; the scripts that run them, refusals."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.settings import fields_of
from tests.conftest import ROOT

FOLDER = ROOT / "configs" / "recipes"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.flags"))
GLUE = (
    *("warmup_step", "learning_rate", "train_step", "save_checkpoints_steps"),
    *("train_batch_size", "max_seq_length"),
)
CLUE = (
    *("train_batch_size", "learning_rate", "num_train_epochs", "save_checkpoints_steps"),
    "max_seq_length",
)
PRETRAINING = (
    *("train_batch_size", "max_seq_length", "max_predictions_per_seq", "optimizer"),
    *("learning_rate", "num_warmup_steps", "save_checkpoints_steps", "albert_config_file"),
    "num_train_steps",
)
# With google-research/albert's settings, except for config and number of steps.
GOOGLE = (4096, 512, 20, "lamb", 0.00176, 3125, 5000)
TINY_ZH = (0.00176, 12500, 2000, "albert_tiny/albert_config_tiny.json", 125_000)
SMALL_ZH = (0.00176, 12500, 2000, "albert_small_zh", 125_000)
SQUAD = (
    *("max_seq_length", "doc_stride", "max_query_length", "train_batch_size", "learning_rate"),
    *("num_train_epochs", "warmup_proportion", "save_checkpoints_steps", "n_best_size"),
    *("max_answer_length", "version_2_with_negative"),
)
CMRC = ("num_train_epochs", "train_batch_size", "learning_rate", "warmup_proportion")
PUBLISHED = [
    # run_glue.sh of google-research/albert
    ("glue_cola", GLUE, (320, 1e-5, 5336, 100, 16, 512)),
    ("glue_mnli", GLUE, (1000, 3e-5, 10000, 100, 128, 512)),
    ("glue_mrpc", GLUE, (200, 2e-5, 800, 100, 32, 512)),
    ("glue_qnli", GLUE, (1986, 1e-5, 33112, 200, 32, 512)),
    ("glue_qqp", GLUE, (1000, 5e-5, 14000, 100, 128, 512)),
    ("glue_rte", GLUE, (200, 3e-5, 800, 100, 32, 512)),
    ("glue_sst-2", GLUE, (1256, 1e-5, 20935, 100, 32, 512)),
    ("glue_sts-b", GLUE, (214, 2e-5, 3598, 100, 16, 512)),
    # its README and the paper
    ("pretrain_base_v1", PRETRAINING, (*GOOGLE, "albert_base", 125_000)),
    ("pretrain_large_v1", PRETRAINING, (*GOOGLE, "albert_large", 125_000)),
    ("pretrain_xlarge_v1", PRETRAINING, (*GOOGLE, "albert_xlarge", 125_000)),
    ("pretrain_xxlarge_v1", PRETRAINING, (*GOOGLE, "albert_xxlarge", 1_500_000)),
    ("pretrain_base_v2", PRETRAINING, (*GOOGLE, "albert_base_v2", 10_000_000)),
    ("pretrain_large_v2", PRETRAINING, (*GOOGLE, "albert_large_v2", 3_000_000)),
    ("pretrain_xlarge_v2", PRETRAINING, (*GOOGLE, "albert_xlarge_v2", 3_000_000)),
    ("pretrain_xxlarge_v2", PRETRAINING, (*GOOGLE, "albert_xxlarge_v2", 3_000_000)),
    ("squad_v1_base_v1", SQUAD, (384, 128, 64, 48, 5e-5, 2.0, 0.1, 5000, 20, 30, False)),
    ("squad_v2_xxlarge_v2", SQUAD, (384, 128, 64, 48, 5e-5, 2.0, 0.1, 5000, 20, 30, True)),
    # run_classifier_clue.sh and the README of albert_zh
    ("clue_afqmc", CLUE, (16, 2e-5, 3, 300, 128)),
    ("clue_cmnli", CLUE, (64, 3e-5, 2, 300, 128)),
    ("clue_csl", CLUE, (16, 1e-5, 5, 100, 128)),
    ("clue_iflytek", CLUE, (32, 2e-5, 3, 300, 128)),
    ("clue_tnews", CLUE, (16, 2e-5, 3, 300, 128)),
    ("clue_wsc", CLUE, (16, 1e-5, 10, 10, 128)),
    ("lcqmc_tiny", CLUE, (64, 1e-4, 5, 1000, 128)),
    ("pretrain_tiny_zh", PRETRAINING, (4096, 512, 51, "lamb_albert_zh", *TINY_ZH)),
    ("pretrain_small_zh", PRETRAINING, (4096, 512, 20, "lamb", *SMALL_ZH)),
    ("cmrc2018_large_zh", CMRC, (3, 32, 2e-5, 0.05)),
]


def settings_of(recipe):
    """The settings with which the command in the recipe's comment starts its program."""
    text = (FOLDER / f"{recipe}.flags").read_text()
    command = rf"^#     python (\w+)\.py --flagfile=configs/recipes/{recipe}\.flags$"
    (program,) = re.findall(command, text, re.MULTILINE)
    settings = programs.PROGRAMS[program.replace("_", "-")].load().Settings
    given = [
        f"--{field.name}=x"
        for field in fields_of(settings)
        if field.is_required and f"--{field.name}=" not in text
    ]
    return parse(settings, [f"--flagfile={recipe}", *given])


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_program_of_a_recipe_accepts_its_flags_and_trains(recipe):
    assert settings_of(recipe).do_train


@pytest.mark.parametrize(
    ("recipe", "names", "expected"), PUBLISHED, ids=[row[0] for row in PUBLISHED]
)
def test_a_recipe_has_the_published_settings(recipe, names, expected):
    settings = settings_of(recipe)
    assert tuple(getattr(settings, name) for name in names) == expected
    if recipe.startswith(("glue", "clue")):
        assert settings.task_name.lower() == recipe.split("_")[1]


RUN_GLUE, RUN_CLUE = "compat/google/run_glue.sh", "compat/albert_zh/run_classifier_clue.sh"


@pytest.mark.parametrize(
    ("script", "argument", "environment", "said"),
    [
        (RUN_GLUE, "no_task", {}, "no_task: expected one of cola mnli"),
        (RUN_GLUE, "rte", {"ALBERT_ROOT": "none"}, "expected a folder with glue/ and the model"),
        (RUN_CLUE, "", {"OUTPUT_DIR": "out"}, "OUTPUT_DIR=out requires a single TASK"),
    ],
)
def test_what_a_script_cannot_run_is_refused(script, argument, environment, said):
    done = subprocess.run(
        ["bash", str(ROOT / script), *[argument] * bool(argument)],
        env=os.environ | {"PYTHON": "echo"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
