"""The recipes: each documents its command, its source and published results, and is run."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess

import pytest

from albert_tf import classification, pretraining, race, squad, token_classification
from albert_tf.cli.flags import parse
from tests.conftest import ROOT

SETTINGS = {
    "run_classifier": classification.Settings,
    "run_race": race.Settings,
    "run_squad": squad.Settings,
    "run_token_classification": token_classification.Settings,
    "run_pretraining": pretraining.Settings,
}
RECIPES = sorted((ROOT / "configs" / "recipes").glob("*.flags"))
# Google's run_glue.sh: warm-up, learning rate, steps, steps between checkpoints, batch.
GLUE = {
    "cola": (320, 1e-5, 5336, 100, 16),
    "mnli": (1000, 3e-5, 10000, 100, 128),
    "mrpc": (200, 2e-5, 800, 100, 32),
    "qnli": (1986, 1e-5, 33112, 200, 32),
    "qqp": (1000, 5e-5, 14000, 100, 128),
    "rte": (200, 3e-5, 800, 100, 32),
    "sst-2": (1256, 1e-5, 20935, 100, 32),
    "sts-b": (214, 2e-5, 3598, 100, 16),
}
# albert_zh's run_classifier_clue.sh: batch, learning rate, epochs, steps between checkpoints.
CLUE = {
    "afqmc": (16, 2e-5, 3, 300),
    "cmnli": (64, 3e-5, 2, 300),
    "csl": (16, 1e-5, 5, 100),
    "iflytek": (32, 2e-5, 3, 300),
    "tnews": (16, 2e-5, 3, 300),
    "wsc": (16, 1e-5, 10, 10),
}
# Config and number of steps that google-research/albert's README and paper name.
PRETRAINING = {
    "base_v1": ("albert_base", 125_000),
    "large_v1": ("albert_large", 125_000),
    "xlarge_v1": ("albert_xlarge", 125_000),
    "xxlarge_v1": ("albert_xxlarge", 1_500_000),
    "base_v2": ("albert_base_v2", 10_000_000),
    "large_v2": ("albert_large_v2", 3_000_000),
    "xlarge_v2": ("albert_xlarge_v2", 3_000_000),
    "xxlarge_v2": ("albert_xxlarge_v2", 3_000_000),
}
PRETRAINING_FLAGS = (
    *("train_batch_size", "max_seq_length", "max_predictions_per_seq", "optimizer"),
    *("learning_rate", "num_warmup_steps", "save_checkpoints_steps"),
)
GLUE_FLAGS = (
    *("warmup_step", "learning_rate", "train_step", "save_checkpoints_steps"),
    "train_batch_size",
)
CLUE_FLAGS = ("train_batch_size", "learning_rate", "num_train_epochs", "save_checkpoints_steps")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_documents_its_command_source_and_expected_results(path):
    text = path.read_text()
    name = path.relative_to(ROOT)
    (program,) = re.findall(rf"^#     python (\w+\.py) --flagfile={name}$", text, re.MULTILINE)
    assert (ROOT / program).is_file()
    assert re.search(r"^# Settings: .*(google-research/albert|albert_zh)", text, re.MULTILINE)
    assert re.search(r"^# Published: .*\d", text, re.MULTILINE)
    assert values(path, ["do_train"], program.removesuffix(".py")) == (True,)


def values(path, names, program="run_classifier"):
    """Returns the values of some flags of a recipe."""
    settings_class = SETTINGS[program]
    given = [f"--flagfile={path}"]
    for field in dataclasses.fields(settings_class):
        is_required = field.default is dataclasses.MISSING
        if is_required and f"--{field.name}=" not in path.read_text():
            given.append(f"--{field.name}=x")
    settings = parse(settings_class, given)
    return tuple(getattr(settings, name) for name in names)


@pytest.mark.parametrize("task", GLUE)
def test_glue_has_googles_settings(task):
    path = ROOT / "configs" / "recipes" / f"glue_{task}.flags"
    assert values(path, GLUE_FLAGS) == GLUE[task]
    assert values(path, ["task_name", "max_seq_length"]) == (
        {"cola": "CoLA"}.get(task, task.upper()),
        512,
    )


@pytest.mark.parametrize("task", CLUE)
def test_clue_has_albert_zhs_settings(task):
    path = ROOT / "configs" / "recipes" / f"clue_{task}.flags"
    assert values(path, CLUE_FLAGS) == CLUE[task]
    assert values(path, ["task_name", "max_seq_length"]) == (task, 128)


def test_lcqmc_has_albert_zhs_settings():
    path = ROOT / "configs" / "recipes" / "lcqmc_tiny.flags"
    assert values(path, [*CLUE_FLAGS, "max_seq_length"]) == (64, 1e-4, 5, 1000, 128)


@pytest.mark.parametrize("name", PRETRAINING)
def test_pretraining_has_googles_settings(name):
    path = ROOT / "configs" / "recipes" / f"pretrain_{name}.flags"
    found = values(path, PRETRAINING_FLAGS, "run_pretraining")
    assert found == (4096, 512, 20, "lamb", 0.00176, 3125, 5000)
    config, steps = values(path, ["albert_config_file", "num_train_steps"], "run_pretraining")
    assert (config, steps) == PRETRAINING[name]
    assert (ROOT / "configs" / f"{config}.json").is_file()


@pytest.mark.parametrize(
    ("size", "predictions", "optimizer"), [("tiny", 51, "lamb_albert_zh"), ("small", 20, "lamb")]
)
def test_pretraining_has_albert_zhs_settings(size, predictions, optimizer):
    path = ROOT / "configs" / "recipes" / f"pretrain_{size}_zh.flags"
    found = values(path, [*PRETRAINING_FLAGS, "num_train_steps"], "run_pretraining")
    assert found == (4096, 512, predictions, optimizer, 0.00176, 12500, 2000, 125000)


RUN_GLUE, RUN_CLUE = "compat/google/run_glue.sh", "compat/albert_zh/run_classifier_clue.sh"


def commands(name, *arguments, **environment):
    """Returns the commands that a shell script would run."""
    done = subprocess.run(
        ["bash", str(ROOT / name), *arguments],
        env=os.environ | {"PYTHON": "echo"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_the_scripts_run_the_recipes(tmp_path):
    (tmp_path / "glue").mkdir()
    code, lines, _ = commands(RUN_GLUE, ALBERT_ROOT=str(tmp_path))
    assert code == 0
    names = [re.search(r"--output_dir=\S+/(\S+)", line)[1] for line in lines]
    assert names == ["cola", "mnli", "mismnli", "ax", *list(GLUE)[2:]]
    assert all(f"--data_dir={tmp_path}/glue" in line for line in lines)
    mismatched, diagnostic = lines[2:4]
    for line in (mismatched, diagnostic):
        assert f"--init_checkpoint={tmp_path}/output/mnli/model.ckpt-best" in line
        assert "--nodo_train" in line
    code, lines, _ = commands(RUN_GLUE, "rte", "--seed=7", ALBERT_ROOT=str(tmp_path))
    assert len(lines) == 1
    assert lines[0].endswith("--seed=7")
    code, lines, _ = commands(RUN_CLUE, "wsc", "--seed=7", DATA_DIR="x")
    assert "clue_wsc.flags --data_dir=x --albert_config_file=albert_tiny/alb" in lines[0]
    code, lines, _ = commands(RUN_CLUE)
    assert [line.split("--output_dir=")[1] for line in lines] == [f"clue_{task}" for task in CLUE]
    code, lines, _ = commands("compat/albert_zh/run_classifier_lcqmc.sh", MODEL_DIR="m")
    assert "--init_checkpoint=m/albert_model.ckpt --output_dir=lcqmc_tiny" in lines[0]


def step_of(line):
    return re.search(r"(\w+)\.py|albert_tf ([\w-]+)", line).expand(r"\1\2")


def test_the_small_model_is_made_in_stages_of_which_finished_ones_are_skipped(tmp_path):
    work = tmp_path / "small"
    run = {"WORK_DIR": str(work), "DUPE_FACTOR": "3"}
    code, lines, _ = commands("examples/pretrain_small.sh", "--num_train_steps=7", **run)
    assert code == 0
    steps = [step_of(line) for line in lines if not line.startswith("+")]
    records = ["create_pretraining_data"] * 2
    later = [*records, "run_pretraining", "pretraining_report"]
    assert steps == ["make_corpus", "train-vocabulary", *later]
    (train,) = [line for line in lines[1::2] if f"--output_file={work}/train.tfrecord" in line]
    assert "--dupe_factor=3" in train
    assert "--resume" in train
    (training,) = [line for line in lines[1::2] if "run_pretraining.py" in line]
    assert training.endswith("--num_train_steps=7")

    (work / "package_task").mkdir()
    (work / "package_task" / "dev.tsv").touch()
    for name in ("vocabulary.model", "vocabulary.vocab"):
        (work / name).touch()
    _, lines, _ = commands("examples/pretrain_small.sh", **run)
    again = [step_of(line) for line in lines if not line.startswith("+")]
    assert again == later


def test_the_small_model_can_have_a_corpus_of_ones_own(tmp_path):
    run = {"WORK_DIR": str(tmp_path), "CORPUS_DIR": "own"}
    _, lines, _ = commands("examples/pretrain_small.sh", **run)
    assert "--input_file=own/train.txt" in lines[1]
    assert not any("make_corpus" in line for line in lines)


@pytest.mark.parametrize("flag", ["--output_dir=out", "-max_seq_length", "--eval_input_file=x"])
def test_the_small_model_takes_no_flag_that_other_stages_need(tmp_path, flag):
    work = tmp_path / "small"
    code, lines, error = commands("examples/pretrain_small.sh", flag, WORK_DIR=str(work))
    assert (code, lines) == (2, [])
    assert f"{flag}: the other stages need this value too. Set WORK_DIR" in error
    assert not work.exists()


def test_the_small_models_records_have_the_length_of_its_recipe():
    path = ROOT / "configs" / "recipes" / "pretrain_small.flags"
    lengths = values(path, ["max_seq_length", "max_predictions_per_seq"], "run_pretraining")
    script = (ROOT / "examples" / "pretrain_small.sh").read_text()
    defaults = re.findall(r"\$\{MAX_\w+:-(\d+)\}", script)
    assert lengths == tuple(map(int, defaults))


def test_the_scripts_report_missing_arguments(tmp_path):
    code, _, error = commands(RUN_GLUE, "no_task", ALBERT_ROOT=str(tmp_path))
    assert (code, "no_task: expected one of cola mnli" in error) == (2, True)
    code, _, error = commands(RUN_GLUE, ALBERT_ROOT=str(tmp_path))
    assert (code, "expected a folder with glue/ and the model" in error) == (2, True)
    code, _, error = commands(RUN_CLUE, "no_task")
    assert (code, "no_task: expected one of afqmc cmnli" in error) == (2, True)
    code, _, error = commands(RUN_CLUE, OUTPUT_DIR="out")
    assert (code, "OUTPUT_DIR=out requires a single TASK" in error) == (2, True)


SQUAD_FLAGS = (
    *("max_seq_length", "doc_stride", "max_query_length", "train_batch_size", "learning_rate"),
    *("num_train_epochs", "warmup_proportion", "save_checkpoints_steps", "n_best_size"),
    *("max_answer_length", "version_2_with_negative"),
)


@pytest.mark.parametrize(
    ("name", "version_2"), [("squad_v1_base_v1", False), ("squad_v2_xxlarge_v2", True)]
)
def test_squad_has_googles_settings(name, version_2):
    path = ROOT / "configs" / "recipes" / f"{name}.flags"
    wanted = (384, 128, 64, 48, 5e-5, 2.0, 0.1, 5000, 20, 30, version_2)
    assert values(path, SQUAD_FLAGS, "run_squad") == wanted


def test_cmrc_has_albert_zhs_settings():
    path = ROOT / "configs" / "recipes" / "cmrc2018_large_zh.flags"
    names = ("num_train_epochs", "train_batch_size", "learning_rate", "warmup_proportion")
    assert values(path, names, "run_squad") == (3, 32, 2e-5, 0.05)
