"""run_race.py as a user runs it, on a few articles about a town and its river."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from albert_tf import race
from albert_tf.checkpoints import store
from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.settings import describe
from tests.script_runner import killed_at, logged_rates, start_of, tensors

OFFICIAL_DEFAULTS = {
    "data_dir": None,
    "spm_model_file": None,
    "albert_config_file": None,
    "output_dir": None,
    "task_name": "race",
    "vocab_file": None,
    "init_checkpoint": None,
    "albert_hub_module_handle": None,
    "do_lower_case": True,
    "dropout_prob": 0.1,
    "max_seq_length": 512,
    "max_qa_length": 128,
    "keep_checkpoint_max": 5,
    "high_only": False,
    "middle_only": False,
    "do_train": True,
    "do_eval": True,
    "do_predict": False,
    "train_batch_size": 32,
    "eval_batch_size": 8,
    "predict_batch_size": 8,
    "learning_rate": 1e-5,
    "train_step": 12000,
    "warmup_step": 1000,
    "save_checkpoints_steps": 100,
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
}
PASSAGE = "The river carries the rain down to the sea. " * 2
QUESTIONS = [
    ("Where does the river go?", ["to the sea", "to the town", "nowhere", "to the rain"], "A"),
    ("The _ is frozen in winter.", ["boat", "landing", "rain", "sea"], "B"),
    ("Who skates there?", ["nobody", "old people", "children", "a boat"], "C"),
]


def write_article(folder, name, passage, questions):
    folder.mkdir(parents=True, exist_ok=True)
    texts, options, answers = zip(*questions, strict=True)
    article = {"article": passage, "questions": texts, "options": options, "answers": answers}
    (folder / f"{name}.txt").write_text(json.dumps(article | {"id": f"{name}.txt"}))


@pytest.fixture(scope="module", name="data_dir")
def make_data(tmp_path_factory):
    """Writes articles of different lengths for all splits and levels."""
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", 3), ("dev", 2), ("test", 1)):
        for level in ("middle", "high"):
            for number in range(count):
                passage = PASSAGE * (number + 1 + (level == "high"))
                folder = root / "RACE" / split / level
                write_article(folder, f"{level}{number}", passage, QUESTIONS[: 3 - number])
    return root


@pytest.fixture(scope="module", name="run")
def with_model(data_dir, config_file, toy_spm_model):
    def run(*arguments):
        given = [
            f"--data_dir={data_dir}",
            f"--albert_config_file={config_file}",
            f"--spm_model_file={toy_spm_model}",
            "--max_seq_length=53",
            "--max_qa_length=17",
            "--train_batch_size=5",
            "--learning_rate=0.01",
            "--warmup_step=1",
            "--log_steps=2",
            "--noplots",
        ]
        return programs.run("run-race", parse(race.Settings, [*given, *arguments]))

    return run


TO_STEP_5 = ["--train_step=5", "--save_checkpoints_steps=2", "--num_keep_checkpoint=0"]


@pytest.fixture(scope="module", name="finished")
def run_through(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("through")
    run(f"--output_dir={folder}", *TO_STEP_5, "--do_predict")
    return folder


def test_every_flag_of_google_has_googles_default():
    fields = {field.name: field.default for field in describe(race.Settings)}
    assert {name: fields[name] for name in OFFICIAL_DEFAULTS} == OFFICIAL_DEFAULTS
    # Required in Google's program; here, an empty flag means no cache.
    assert {fields[f"{name}_file"] for name in ("train", "eval", "predict")} == {""}
    old = ["--num_keep_checkpoint=3", "--master=x", "--num_tpu_cores=8", "--iterations_per_loop=1"]
    settings = parse(race.Settings, ["--data_dir=data", "--output_dir=out", *old])
    assert settings.keep_checkpoint_max == 3


def test_the_learning_rate_depends_on_the_finished_steps(finished):
    """Of update t that of step t - 1, as in Google's trainer."""
    assert logged_rates(finished) == pytest.approx({2: 0.008, 4: 0.004, 5: 0.002})


def test_training_evaluates_its_checkpoints_and_keeps_the_best(finished):
    assert list(store.list_checkpoints(str(finished))) == [0, 2, 4, 5]
    text = (finished / "eval_results.txt").read_text()
    blocks = text.split("=" * 50 + "\n")
    assert blocks.pop() == ""
    keys = ["eval_accuracy", "eval_accuracy_high", "eval_accuracy_middle", "eval_loss"]
    accuracies = []
    for step, block in zip((0, 2, 4, 5), blocks, strict=True):
        values = dict(re.findall(r"(\w+) = (\S+)\n", block))
        assert list(values) == [*keys, "global_step", "loss", "best"]
        assert values["global_step"] == str(step)
        high, middle = float(values["eval_accuracy_high"]), float(values["eval_accuracy_middle"])
        accuracies.append(float(values["eval_accuracy"]))
        assert accuracies[-1] == pytest.approx((5 * high + 5 * middle) / 10)
        is_best = accuracies[-1] > float(values["best"])
        assert ("saved" in block) == is_best
        assert float(values["best"]) == pytest.approx(max([-1.0, *accuracies[:-1]]))
    best = tensors(finished / "model.ckpt-best")
    assert best["global_step"] == (0, 2, 4, 5)[int(np.argmax(accuracies))]
    assert best["output_weights"].shape == (1, 12)
    assert best["output_weights/adam_m"].shape == (1, 12)


def test_questions_of_the_test_split_are_answered_and_evaluated(finished):
    lines = (finished / "race_predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    assert [answer["id"] for answer in answers] == ["middle0.txt"] * 3 + ["high0.txt"] * 3
    assert [answer["question"] for answer in answers][:3] == [text for text, *_ in QUESTIONS]
    right = [answer["answer"] == "ABC"[i % 3] for i, answer in enumerate(answers)]
    text = (finished / "predict_results.txt").read_text()
    assert text.startswith("***** Predict results *****\neval_accuracy = ")
    values = dict(re.findall(r"(\w+) = (\S+)\n", text))
    assert float(values["eval_accuracy"]) == pytest.approx(sum(right) / 6)
    assert list(values)[-1] == "best"


def test_running_again_changes_nothing(finished, run):
    def files():
        names = {"run.json", "runs.jsonl"}  # these say when it was run
        found = (p for p in finished.iterdir() if "tfevents" not in p.name)
        return {p.name: p.read_bytes() for p in found if p.name not in names}

    before = files()
    run(f"--output_dir={finished}", *TO_STEP_5, "--do_predict")
    assert files() == before
    run(f"--output_dir={finished}", "--do_train=False")
    assert files() == before


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_killed_run_resumes_bit_for_bit_with_few_checkpoints_kept(
    finished, run, tmp_path, monkeypatch
):
    arguments = [f"--output_dir={tmp_path}", *TO_STEP_5[:2], "--num_keep_checkpoint=1"]
    with killed_at(4):
        run(*arguments)
    assert list(store.list_checkpoints(str(tmp_path))) == [2]
    run(*arguments)
    assert list(store.list_checkpoints(str(tmp_path))) == [5]
    ours, theirs = (tensors(folder / "model.ckpt-5") for folder in (tmp_path, finished))
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    # Deleted checkpoints were evaluated before, and count.
    assert (tmp_path / "evaluations.jsonl").read_text() == (
        finished / "evaluations.jsonl"
    ).read_text()
    ours, theirs = (tensors(folder / "model.ckpt-best") for folder in (tmp_path, finished))
    assert ours["global_step"] == theirs["global_step"]


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_sweep_writes_a_folder_per_run_and_exports_the_best(run, tmp_path):
    result = run(
        f"--output_dir={tmp_path}",
        "--train_step=2",
        "--learning_rate=0.01,0.02",
        "--seed=7",
        f"--export_dir={tmp_path}/export",
        "--plots",
    )
    folders = [f"{tmp_path}/lr0.01_seed7", f"{tmp_path}/lr0.02_seed7"]
    assert [str(path) for path in sorted(tmp_path.glob("lr*"))] == folders
    assert result.output_dir in folders
    rows = [line.split("\t") for line in (tmp_path / "sweep_results.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["folder", *folders]
    column = rows[0].index("eval_accuracy")
    assert result.metrics["eval_accuracy"] == max(float(row[column]) for row in rows[1:])
    assert all(folder in result.text for folder in folders)
    assert len(list(tmp_path.glob("lr*/training_curve.png"))) == 2
    (saved,) = (tmp_path / "export").iterdir()
    names = {path.name for path in (saved / "assets.extra").iterdir()}
    assert names == {"albert_config.json", "toy.model", "run.json"}


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_training_stops_early(run, tmp_path):
    run(
        f"--output_dir={tmp_path}",
        "--train_step=40",
        "--save_checkpoints_steps=1",
        "--learning_rate=0",
        "--early_stopping_patience=1",
    )
    # With a learning rate of 0 nothing gets better than step 1.
    assert list(store.list_checkpoints(str(tmp_path)))[-1] == 2


def test_a_model_can_be_evaluated_and_used_without_training(finished, run, tmp_path):
    start = f"--init_checkpoint={finished}/model.ckpt-best"
    run(f"--output_dir={tmp_path}", start, "--do_train=False", "--do_predict", "--middle_only")
    text = (tmp_path / "eval_results.txt").read_text()
    assert "eval_accuracy_middle" in text
    assert "eval_accuracy_high" not in text
    assert len((tmp_path / "race_predictions.jsonl").read_text().splitlines()) == 3
    assert not list(tmp_path.glob("*.index"))


def test_features_are_cached_in_the_given_files(finished, run, tmp_path):
    start = [f"--init_checkpoint={finished}/model.ckpt-best", "--do_train=False"]
    cache = tmp_path / "eval.npz"
    results = []
    for number in (1, 2):
        folder = tmp_path / f"out{number}"
        run(f"--output_dir={folder}", *start, f"--eval_file={cache}")
        results.append((folder / "eval_results.txt").read_text())
        assert cache.exists()
    assert results[0] == results[1]


@pytest.fixture(name="started")
def start_only(run, tmp_path, monkeypatch):
    """See `script_runner.start_of`."""
    return start_of(run, monkeypatch, f"--output_dir={tmp_path}/out", "--do_eval=False")


def test_a_pretrained_encoder_is_loaded_and_the_new_head_is_reported(finished, started, tmp_path):
    weights = tensors(finished / "model.ckpt-5")
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    store.save_checkpoint(str(tmp_path / "pretrained"), encoder)
    state, log = started(f"--init_checkpoint={tmp_path}/pretrained")
    assert "New heads with random weights: output_bias, output_weights" in log
    assert state["global_step"] == 0
    for name, value in encoder.items():
        wanted = np.zeros_like(value) if "/adam_" in name else value
        np.testing.assert_array_equal(state[name], wanted, err_msg=name)


def test_a_head_of_another_shape_is_skipped_and_reported(finished, started, tmp_path):
    weights = tensors(finished / "model.ckpt-5")
    weights["output_weights"] = np.ones((3, 12), np.float32)
    store.save_checkpoint(str(tmp_path / "classifier"), weights)
    state, log = started(f"--init_checkpoint={tmp_path}/classifier")
    assert re.search(r"misshapen +output_weights: \[3, 12\]", log)
    assert state["output_weights"].shape == (1, 12)
    assert np.abs(state["output_weights"]).max() < 0.05


def test_the_folder_of_a_hub_module_supplies_the_weights(finished, started, tmp_path):
    (tmp_path / "hub" / "variables").mkdir(parents=True)
    (tmp_path / "hub" / "saved_model.pb").write_bytes(b"")
    weights = tensors(finished / "model.ckpt-5")
    store.save_checkpoint(str(tmp_path / "hub" / "variables" / "variables"), weights)
    state, _ = started(f"--albert_hub_module_handle={tmp_path}/hub")
    np.testing.assert_array_equal(state["output_weights"], weights["output_weights"])


def test_starting_from_random_weights_is_reported(started):
    _, log = started()
    assert "No --init_checkpoint: training starts from random weights" in log


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_custom_questions_have_two_or_more_options(run, tmp_path):
    def rows(count):
        return [
            {
                "id": f"q{number}",
                "passage": PASSAGE,
                "question": "Where does it go?",
                "options": ["sea", "town", "rain", "boat", "winter"][: 2 + number % 4],
                "label": number % 2,
            }
            for number in range(count)
        ]

    data = tmp_path / "data"
    data.mkdir()
    write_lines(data / "train.jsonl", rows(11))
    write_lines(data / "dev.jsonl", rows(5))
    unanswered = [{key: row[key] for key in row if key != "label"} for row in rows(3)]
    write_lines(data / "test.jsonl", unanswered)
    run(
        "--task_name=choice",
        f"--data_dir={data}",
        f"--output_dir={tmp_path}/out",
        "--do_predict",
        "--num_train_epochs=2",
        "--save_checkpoints_steps=3",
        "--official_order",
    )
    assert list(store.list_checkpoints(f"{tmp_path}/out")) == [0, 3, 4]  # int(11 / 5 · 2)
    lines = (tmp_path / "out" / "choice_predictions.jsonl").read_text().splitlines()
    assert [len(json.loads(line)["probabilities"]) for line in lines] == [2, 3, 4]
    assert all(sum(json.loads(line)["probabilities"]) == pytest.approx(1) for line in lines)
    assert not (tmp_path / "out" / "predict_results.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--do_train=False", "--do_eval=False"], "nothing to do: set --do_train, --do_eval,"),
        (["--max_seq_length=62"], r"--max_seq_length=62 is larger than the model.s max_.*=61"),
        (["--middle_only", "--high_only"], "--middle_only and --high_only exclude each other"),
        (["--init_checkpoint=a", "--albert_hub_module_handle=b"], "are mutually exclusive"),
        (
            ["--albert_hub_module_handle=https://x/1"],
            "modules are not downloaded. Unpack the module",
        ),
        (["--init_checkpoint=none"], "none: no such checkpoint"),
        (["--use_tpu"], "--use_tpu"),
        (["--do_train=False"], "contains no checkpoint to evaluate"),
        (["--num_train_epochs=0.1"], "is less than one step of --train_batch_size=5"),
        (["--spm_model_file="], "a vocabulary is required"),
        (["--do_eval=False", "--task_name=choice"], r"no train questions: neither .*train\.jsonl"),
    ],
)
def test_bad_flags_are_rejected_before_training(run, tmp_path, arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(f"--output_dir={tmp_path}/out", "--train_step=2", *arguments)
    assert not list(tmp_path.glob("out/*.index"))


def test_a_vocabulary_larger_than_the_models_is_rejected(run, tmp_path, config_file):
    config = json.loads(config_file.read_text()) | {"vocab_size": 61}
    (tmp_path / "small.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"toy\.model has \d+ entries, but .*small.json has"):
        run(f"--output_dir={tmp_path}/out", f"--albert_config_file={tmp_path}/small.json")


BAD = [
    ("", QUESTIONS, r"high/x\.txt: 'article' is empty"),
    (
        PASSAGE,
        [QUESTIONS[0], ("Who?", ["a", "b", "c"], "A")],
        r"high/x\.txt, question 2 of x\.txt: 3 options, expected 4",
    ),
    (
        PASSAGE,
        [("Who?", ["a", "b", "c", "d"], "E")],
        r"high/x\.txt, question 1 of x\.txt: label 'E' for 4 options",
    ),
    (
        PASSAGE,
        [("Who?", ["a", "b", "c", ""], "A")],
        r"high/x\.txt, question 1 of x\.txt: option 4 of 4 is empty",
    ),
]


@pytest.mark.parametrize(("passage", "questions", "message"), BAD)
def test_an_error_names_file_and_question_of_a_bad_question(
    run, tmp_path, passage, questions, message
):
    write_article(tmp_path / "RACE" / "train" / "high", "x", passage, questions)
    with pytest.raises(ValueError, match=f"{tmp_path}/RACE/train.*{message}"):
        run(f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out")
    assert not list(tmp_path.glob("out/*.index"))


def test_bad_questions_can_be_skipped_and_are_counted(started, tmp_path):
    folder = tmp_path / "RACE" / "train" / "high"
    write_article(folder, "x", PASSAGE, [("Who?", ["a", "b", "c"], "A")])
    write_article(folder, "y", PASSAGE, QUESTIONS)
    _, log = started(f"--data_dir={tmp_path}", "--max_bad_rows=1")
    assert "1 bad rows skipped" in log
