"""run_squad.py as a user runs it, on a few questions about a town and its river."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf import squad
from albert_tf.checkpoints import store
from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.settings import describe
from albert_tf.training.loop import Trainer
from tests.conftest import TOY_TEXT
from tests.script_runner import killed_at, logged_rates, tensors

BOTH = {
    "albert_config_file": None,
    "spm_model_file": None,
    "vocab_file": None,
    "output_dir": None,
    "train_file": None,
    "predict_file": None,
    "init_checkpoint": None,
    "albert_hub_module_handle": None,
    "do_lower_case": True,
    "max_seq_length": 384,
    "doc_stride": 128,
    "max_query_length": 64,
    "do_train": False,
    "do_predict": False,
    "train_batch_size": 32,
    "predict_batch_size": 8,
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "warmup_proportion": 0.1,
    "save_checkpoints_steps": 1000,
    "n_best_size": 20,
    "max_answer_length": 30,
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
}
VERSION_1 = {"export_dir": None}
VERSION_2 = {"start_n_top": 5, "end_n_top": 5, "dropout_prob": 0.1}
# Required in Google's programs; here, an empty flag means no cache.
FEATURE_FILES = {f"{name}_file": "" for name in ("train_feature", "predict_feature")}

LINES = TOY_TEXT.splitlines()
CONTEXTS = [" ".join(LINES[:2]), " ".join(LINES[1:4]), " ".join(LINES[3:])]
QUESTIONS = [
    ("r1", 0, "Where does the river carry the rain?", "down to the sea"),
    ("r2", 0, "What waits at the landing?", "A small boat"),
    ("r3", 1, "Who skates in winter?", "children"),
    ("r4", 2, "What had changed?", "the town"),
    ("r5", 2, "Who says that?", "Old people"),
    ("r6", 1, "What is the name of the boat?", None),
    ("r7", 2, "When was the town built?", None),
]
ANSWERABLE = [row for row in QUESTIONS if row[3]]


def squad_file(path, rows, with_answers=True):
    """Writes SQuAD's JSON; rows are (id, number of the context, question, answer or None)."""
    paragraphs = []
    for number, context in enumerate(CONTEXTS):
        questions = []
        for qas_id, which, question, answer in rows:
            entry = {"id": qas_id, "question": question}
            if with_answers:
                found = [{"text": answer, "answer_start": context.find(answer)}] if answer else []
                entry |= {"answers": found, "is_impossible": answer is None}
            if which == number:
                questions.append(entry)
        paragraphs.append({"context": context, "qas": questions})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module", name="files")
def write_data(tmp_path_factory):
    """Writes questions of both versions, and questions without answers."""
    root = tmp_path_factory.mktemp("questions")
    return {
        "v1": squad_file(root / "v1.json", ANSWERABLE),
        "v2": squad_file(root / "v2.json", QUESTIONS),
        "unknown": squad_file(root / "unknown.json", QUESTIONS, with_answers=False),
    }


def run_program(*arguments):
    return programs.run("run-squad", parse(squad.Settings, arguments))


@pytest.fixture(scope="module", name="run")
def with_model(config_file, toy_spm_model):
    def run(*arguments):
        given = [
            f"--albert_config_file={config_file}",
            f"--spm_model_file={toy_spm_model}",
            "--max_seq_length=53",
            "--max_query_length=17",
            "--doc_stride=13",
            "--num_workers=1",
            "--train_batch_size=3",
            "--learning_rate=0.01",
            "--log_steps=2",
        ]
        return run_program(*given, *arguments)

    return run


# int(5 / 3 · 3) = 5 steps of SQuAD 1.1, int(7 / 3 · 3) = 7 of 2.0: questions count, not windows.
def training(files, version):
    name = files[version]
    return [
        f"--train_file={name}",
        f"--predict_file={name}",
        "--do_train",
        "--do_predict",
        "--save_checkpoints_steps=2",
    ]


def run_through(run, files, folder, version):
    run(
        f"--output_dir={folder}",
        *training(files, version),
        "--keep_checkpoint_max=0",
        f"--export_dir={folder}/export",
    )
    return folder


@pytest.fixture(scope="module", name="v1")
def run_version_1(run, files, tmp_path_factory):
    return run_through(run, files, tmp_path_factory.mktemp("v1"), "v1")


@pytest.fixture(scope="module", name="v2")
def run_version_2(run, files, tmp_path_factory):
    return run_through(run, files, tmp_path_factory.mktemp("v2"), "v2")


def read_json(path):
    return json.loads(path.read_text())


def test_every_flag_of_googles_two_programs_has_their_default():
    wanted = BOTH | VERSION_1 | VERSION_2 | FEATURE_FILES
    fields = {field.name: field.default for field in describe(squad.Settings)}
    assert {name: fields[name] for name in wanted} == wanted
    old = ["--nouse_einsum", "--predict_feature_left_file=x", "--master=x", "--num_tpu_cores=8"]
    assert parse(squad.Settings, ["--output_dir=out", *old]) == squad.Settings(output_dir="out")


def test_the_learning_rate_depends_on_the_finished_steps(v1):
    """Of update t that of step t - 1, as in Google's trainer."""
    assert logged_rates(v1) == pytest.approx({2: 0.008, 4: 0.004, 5: 0.002})


def blocks(folder):
    text = (folder / "eval_results.txt").read_text()
    *found, last = text.split("=" * 50 + "\n")
    return [dict(re.findall(r"([\w ]+) = (\S+)\n", block)) for block in found], found, last


@pytest.mark.parametrize(
    ("version", "steps", "keys"),
    [
        ("v1", [0, 2, 4, 5], {"exact_match", "f1"}),
        pytest.param(
            "v2",
            [0, 2, 4, 6, 7],
            {"exact", "f1", "null_score_diff_threshold", "total"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_checkpoints_are_evaluated_and_the_best_is_kept(request, version, steps, keys):
    folder = request.getfixturevalue(version)
    assert list(store.list_checkpoints(str(folder))) == steps
    values, texts, last = blocks(folder)
    assert [int(value["global_step"]) for value in values] == steps
    best = -1.0
    for value, text in zip(values, texts, strict=True):
        assert keys <= set(value)
        f1 = float(value["f1"])
        assert ("saved" in text) == (f1 > best)
        best = max(best, f1)
        assert float(value["best f1"]) == best
    scores = [float(value["f1"]) for value in values]
    best_step = steps[int(np.argmax(scores))]
    assert last.endswith(f"best perf happened at step: {best_step}")
    assert f"f1 = {values[int(np.argmax(scores))]['f1']}\n" in last
    assert tensors(folder / "model.ckpt-best")["global_step"] == best_step
    head = {"v1": "cls/squad/output_weights", "v2": "end_logits/dense_0/kernel"}[version]
    assert head in tensors(folder / "model.ckpt-best")


@pytest.mark.parametrize(("version", "rows"), [("v1", ANSWERABLE), ("v2", QUESTIONS)])
def test_answers_are_written_to_googles_files(request, version, rows):
    folder = request.getfixturevalue(version)
    predictions = read_json(folder / "predictions.json")
    nbest = read_json(folder / "nbest_predictions.json")
    assert list(predictions) == list(nbest)
    assert set(predictions) == {row[0] for row in rows}
    for qas_id, context, *_ in rows:
        assert all(entry["text"] in CONTEXTS[context] for entry in nbest[qas_id])
        assert predictions[qas_id] in (nbest[qas_id][0]["text"], "")
    assert (folder / "null_odds.json").exists() == (version == "v2")
    if version == "v2":
        odds = read_json(folder / "null_odds.json")
        metrics = blocks(folder)[2]
        threshold = float(re.search(r"null_score_diff_threshold = (\S+)", metrics)[1])
        assert {q for q, odd in odds.items() if odd > threshold} == {
            qas_id for qas_id, text in predictions.items() if not text
        }


def test_running_again_changes_nothing(v1, run, files):
    def contents():
        names = {"run.json", "runs.jsonl"}  # these say when it was run
        found = (p for p in v1.glob("*.*") if "tfevents" not in p.name)
        return {p.name: p.read_bytes() for p in found if p.name not in names}

    before = contents()
    run(f"--output_dir={v1}", *training(files, "v1"), "--keep_checkpoint_max=0")
    assert contents() == before


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_killed_run_resumes_bit_for_bit(v2, run, files, tmp_path, monkeypatch):
    arguments = [f"--output_dir={tmp_path}", *training(files, "v2"), "--keep_checkpoint_max=1"]
    with killed_at(4):
        run(*arguments)
    run(*arguments)
    assert list(store.list_checkpoints(str(tmp_path))) == [7]
    ours, theirs = (tensors(folder / "model.ckpt-7") for folder in (tmp_path, v2))
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    for name in ("predictions.json", "nbest_predictions.json", "null_odds.json"):
        assert (tmp_path / name).read_text() == (v2 / name).read_text()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_questions_without_answers_use_the_trained_head(request, version, run, files, tmp_path):
    folder = request.getfixturevalue(version)
    kept = (folder / "eval_results.txt").read_bytes()
    start = f"--init_checkpoint={folder}/model.ckpt-best"
    run(f"--output_dir={tmp_path}", start, f"--predict_file={files['unknown']}", "--do_predict")
    assert set(read_json(tmp_path / "predictions.json")) == {row[0] for row in QUESTIONS}
    assert (tmp_path / "null_odds.json").exists() == (version == "v2")
    assert not (tmp_path / "eval_results.txt").exists()
    ours, theirs = (read_json(where / "nbest_predictions.json") for where in (tmp_path, folder))
    assert [entry["text"] for entry in ours["r1"]] == [entry["text"] for entry in theirs["r1"]]
    assert (folder / "eval_results.txt").read_bytes() == kept


def test_the_threshold_of_the_evaluation_is_used_for_questions_without_answers(v2, run, files):
    names = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    kept = {name: (v2 / name).read_bytes() for name in names}
    run(f"--output_dir={v2}", f"--predict_file={files['unknown']}", "--do_predict")
    assert {name: (v2 / name).read_bytes() for name in names} == kept
    run(
        f"--output_dir={v2}",
        f"--predict_file={files['unknown']}",
        "--do_predict",
        "--null_score_diff_threshold=-1e9",
    )
    assert set(read_json(v2 / "predictions.json").values()) == {""}
    (v2 / "predictions.json").write_bytes(kept["predictions.json"])


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_single_question_is_answered_on_the_terminal(request, version, run):
    folder = request.getfixturevalue(version)
    answers = (folder / "predictions.json").read_bytes()
    asked = [f"--question={QUESTIONS[0][2]}", f"--context={CONTEXTS[0]}"]
    first, *lines = run(f"--output_dir={folder}", *asked).text.splitlines()
    nbest = read_json(folder / "nbest_predictions.json")["r1"]
    assert first == read_json(folder / "predictions.json")["r1"] or first == "(no answer)"
    if version == "v2":
        odds = read_json(folder / "null_odds.json")["r1"]
        assert lines.pop(0).startswith(f"null odds {odds:.3f}, threshold")
    assert [line[8:] for line in lines] == [entry["text"] for entry in nbest]
    assert sum(float(line[:6]) for line in lines) == pytest.approx(1, abs=1e-3)
    assert (folder / "predictions.json").read_bytes() == answers


def tensor_batch(length, names):
    mask = (np.arange(length) < 31).astype(np.int32)[None]
    ids = np.random.default_rng(5).integers(5, 89, (1, length)).astype(np.int32) * mask
    segments = (np.arange(length) >= 11).astype(np.int32) * mask
    values = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    values["p_mask"] = 1 - segments
    return {name: values[name] for name in names}


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_exported_models_compute_the_same_outputs(request, version):
    folder = request.getfixturevalue(version)
    (saved,) = (folder / "export" / "saved_model").iterdir()
    extra = {path.name for path in (saved / "assets.extra").iterdir()}
    threshold = {"null_odds_threshold.json"} if version == "v2" else set()
    assert extra == {"albert_config.json", "toy.model", "run.json"} | threshold
    served = tf.saved_model.load(str(saved)).signatures["serving_default"]
    ((), inputs) = served.structured_input_signature
    names = {"input_ids", "input_mask", "segment_ids"} | ({"p_mask"} if version == "v2" else set())
    assert set(inputs) == names
    batch = tensor_batch(53, names)
    found = served(**{name: tf.constant(value) for name, value in batch.items()})
    lite = tf.lite.Interpreter(model_path=str(folder / "export" / "albert_model.tflite"))
    small = lite.get_signature_runner("serving_default")(**batch)
    if version == "v1":
        assert set(found) == {"start_log_prob", "end_log_prob"}
        found = {name.replace("log_prob", "logits"): value for name, value in found.items()}
    assert set(found) == set(small)
    for name, value in found.items():
        np.testing.assert_allclose(small[name], value, atol=2e-5, err_msg=name)


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_a_sweep_writes_a_folder_per_run_and_exports_the_best(run, files, tmp_path):
    arguments = ["--num_train_epochs=1", "--num_runs=2", "--seed=7", "--plots"]
    result = run(f"--output_dir={tmp_path}", *training(files, "v2"), *arguments)
    folders = [f"{tmp_path}/lr0.01_seed{seed}" for seed in (7, 8)]
    assert result.output_dir in folders
    assert all(f"{folder}:\n" in result.text for folder in folders)
    rows = [line.split("\t") for line in (tmp_path / "sweep_results.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["folder", *folders]
    assert result.metrics["f1"] == max(float(row[rows[0].index("f1")]) for row in rows[1:])
    for folder in folders:
        assert {"predictions.json", "training_curve.png"} <= set(os.listdir(folder))
    # Later runs use the head of the trained models.
    again = run(
        f"--output_dir={tmp_path}",
        *arguments[1:3],
        f"--export_dir={tmp_path}/export",
        f"--predict_file={files['v2']}",
        "--do_eval",
        "--predict_batch_size=3",
    )
    assert again.metrics == result.metrics
    assert (tmp_path / "export" / "albert_model.tflite").exists()


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_training_stops_early(run, files, tmp_path):
    run(
        f"--output_dir={tmp_path}",
        *training(files, "v1")[:2],
        "--do_train",
        "--do_eval",
        "--save_checkpoints_steps=1",
        "--learning_rate=0",
        "--num_train_epochs=0",
        "--train_step=20",
        "--early_stopping_patience=1",
    )
    # With a learning rate of 0 nothing gets better than step 1.
    assert list(store.list_checkpoints(str(tmp_path)))[-1] == 2
    assert (tmp_path / "eval_results.txt").exists()
    assert not (tmp_path / "predictions.json").exists()


def test_features_are_cached_in_the_given_files(v1, run, files, tmp_path):
    start = [f"--init_checkpoint={v1}/model.ckpt-best", f"--predict_file={files['v1']}"]
    cache = tmp_path / "features" / "dev.npz"
    results, written = [], []
    for number in (1, 2):
        folder = tmp_path / f"out{number}"
        run(
            f"--output_dir={folder}",
            *start,
            "--do_predict",
            f"--predict_feature_file={cache}",
            f"--predict_feature_left_file={tmp_path}/left",
        )
        results.append((folder / "eval_results.txt").read_text())
        written.append(cache.stat().st_mtime_ns)
    assert results[0] == results[1]
    assert written[0] == written[1]
    assert not (tmp_path / "left").exists()


CHINESE = "老人们说，从前这条河比现在宽。后来量过一次，河没有变，是镇子变大了。"


def test_chinese_uses_wordpieces_and_the_metrics_of_cmrc(config_file, tmp_path):
    letters = sorted({*CHINESE, *"谁说河宽什么变大了？"})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    questions = [("谁说河宽？", "老人们"), ("什么变大了？", "镇子")]
    qas = [
        {
            "id": f"c{number}",
            "question": question,
            "answers": [{"text": answer, "answer_start": CHINESE.find(answer)}],
        }
        for number, (question, answer) in enumerate(questions)
    ]
    data = tmp_path / "cmrc.json"
    data.write_text(json.dumps({"data": [{"paragraphs": [{"context": CHINESE, "qas": qas}]}]}))
    common = [
        f"--albert_config_file={config_file}",
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--predict_file={data}",
        "--do_predict",
        "--max_seq_length=51",
        "--max_query_length=7",
        f"--output_dir={tmp_path}/out",
        "--num_workers=1",
    ]
    training = [f"--train_file={data}", "--do_train", "--train_batch_size=1"]
    result = run_program(*common, *training, "--num_train_epochs=1")
    assert re.search(r"^average = .*\nexact_match = .*\nf1 = ", result.text)
    assert set(read_json(tmp_path / "out" / "predictions.json")) == {"c0", "c1"}
    result = run_program(*common, "--nomixed_segmentation")
    assert re.search(r"^exact_match = .*\nf1 = .*$", result.text)


@pytest.fixture(name="refused")
def run_to_an_error(run, files, tmp_path):
    def refused(message, *arguments):
        with pytest.raises((ValueError, OSError), match=message):
            run(f"--output_dir={tmp_path}/out", *arguments)
        assert not list(tmp_path.glob("out/*.index"))

    return refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do: set --do_train, --do_predict, --export_dir, or --question"),
        (["--do_train"], "--do_train requires --train_file"),
        (["--do_predict"], "--do_predict requires --predict_file"),
        (["--question=Who?"], "--context is empty: --question and --context require each other"),
        (["--question=Who?", "--context=Me."], "neither a trained model nor a file of questions"),
        (["TRAIN", "--max_seq_length=20"], "--max_seq_length=20 leaves no room for the context"),
        (["TRAIN", "--max_seq_length=62"], r"larger than the model.s max_position_embeddings=61"),
        (["TRAIN", "--num_train_epochs=0.1"], "is less than one step of --train_batch_size=3"),
        (["TRAIN", "--init_checkpoint=none"], "none: no such checkpoint"),
        (["TRAIN", "--version_2_with_negative", "--start_n_top=54"], "--start_n_top=54"),
        (["PREDICT"], "contains no checkpoint to evaluate"),
    ],
)
def test_bad_flags_are_rejected_before_training(refused, files, arguments, message):
    words = {
        "TRAIN": ["--do_train", f"--train_file={files['v1']}"],
        "PREDICT": ["--do_predict", f"--predict_file={files['v1']}"],
    }
    refused(message, *(word for argument in arguments for word in words.get(argument, [argument])))


def test_a_model_that_always_answers_is_not_evaluated_on_unanswerable_questions(v1, run, files):
    with pytest.raises(ValueError, match="has unanswerable questions, but the model has the head"):
        run(f"--output_dir={v1}", f"--predict_file={files['v2']}", "--do_predict")


def test_bad_answers_are_counted_and_skipped_only_in_training(run, files, tmp_path, monkeypatch):
    logged, trained = [], []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    monkeypatch.setattr(Trainer, "train", lambda trainer, *_, **__: trained.append(trainer))
    content = read_json(files["v1"])
    questions = [q for p in content["data"][0]["paragraphs"] for q in p["qas"]]
    questions[0]["answers"][0]["answer_start"] += 1
    questions[1]["answers"][0] = {"text": "re\u0301", "answer_start": 3}
    questions[2]["question"] *= 30
    content["data"][0]["paragraphs"].append(
        {
            "context": " ",
            "qas": [
                {"id": "empty", "question": "Who?", "answers": [{"text": " ", "answer_start": 0}]}
            ],
        }
    )
    (tmp_path / "bad.json").write_text(json.dumps(content))
    run(
        f"--output_dir={tmp_path}/out",
        f"--train_file={tmp_path}/bad.json",
        "--do_train",
        "--num_train_epochs=2",
    )
    text = "\n".join(logged)
    assert re.search(r"skipped, answer not at answer_start: 2 questions \(r1, r2\)", text)
    assert re.search(r"1 of 4 questions are skipped.*: empty", text)
    assert trained[0].num_train_steps == 2  # int(4 / 3 · 2)
