"""Question answering as a task: the head's version, answers, metrics and thresholds."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.checkpoints import containers
from albert_tf.checkpoints.evaluations import Evaluation
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.answers import (
    Answers,
    candidates_v1,
    candidates_v2,
    decode,
    write_answers,
)
from albert_tf.finetuning.squad.metrics import evaluate, null_threshold
from albert_tf.finetuning.squad.questions import SquadData, SquadExample
from albert_tf.finetuning.squad.reading import read_squad
from albert_tf.finetuning.squad.task import QuestionAnswering, choose_version
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization import FullTokenizer
from tests.finetuning.squad.word_tokenizer import WordTokenizer

LENGTHS = {"max_seq_length": 11, "doc_stride": 3, "max_query_length": 2}


def make_data(version_2=False, **overrides):
    examples = [
        SquadExample("q1", "what waits", "the boat waits", ("boat",), 4),
        SquadExample("q2", "who", "nobody knows", ("nobody",), 0),
        SquadExample("q3", "when", "nobody knows", ("knows",), 7),
    ]
    values = {
        "path": "questions.json",
        "examples": examples,
        "version_2": version_2,
        "has_labels": True,
        "is_chinese": False,
    }
    return SquadData(**{**values, **overrides})


def make_task(config, version_2, tokenizer=None, **settings):
    """Returns the task, by default for windows of `LENGTHS`."""
    values = LENGTHS | {"output_dir": "out", "n_best_size": 7, "num_workers": 1} | settings
    return QuestionAnswering(
        Settings(**values), config, tokenizer or WordTokenizer(), {}, version_2
    )


def test_runs_that_skipped_contexts_are_known_by_their_examples(tiny_config):
    data = make_data()
    korean = SquadExample("q4", "어디", "안나는 로마에서 살아요", ("로마",), 4)
    more = make_data(examples=[*data.examples, korean])
    task = make_task(tiny_config, version_2=False)
    assert task.checksum(data) == data.checksum()
    assert task.checksum(more) != more.checksum()


def prepare(task, splits=types.MappingProxyType({})):
    return FineTuning(task, splits, tf.distribute.get_strategy())


def test_accuracies_count_correct_positions(tiny_config):
    batch = {
        "input_ids": tf.zeros((4, 7), tf.int32),
        "start_positions": tf.constant([3, 0, 4, 5]),
        "end_positions": tf.constant([3, 1, 4, 6]),
        "is_impossible": tf.constant([0, 1, 0, 0]),
    }
    starts, ends = tf.one_hot([3, 0, 4, 6], 7), tf.one_hot([3, 1, 5, 5], 7)
    outputs = {"start_logits": starts, "end_logits": ends}
    _, sums = prepare(make_task(tiny_config, version_2=False)).loss(outputs, batch)
    expected = {"start_accuracy": (3, 4), "end_accuracy": (2, 4)}
    assert {name: tuple(map(float, pair)) for name, pair in sums.items()} == expected
    outputs = {
        "start_log_probs": starts,
        "end_log_probs": ends,
        "cls_logits": tf.constant([0.0, 2.0, 0.5, 0.5]),  # 0 is answerable
    }
    _, sums = prepare(make_task(tiny_config, version_2=True)).loss(outputs, batch)
    expected["answerable_accuracy"] = (2, 4)
    assert {name: tuple(map(float, pair)) for name, pair in sums.items()} == expected


# Questions a, b and d have answers, which are predicted; c and e have none, but get predictions.
GOLDS = {"a": "x", "b": "y", "c": "", "d": "z", "e": ""}
FOUND = {"a": "x", "b": "y", "c": "v", "d": "z", "e": "w"}


def threshold_case(odds):
    examples = tuple(
        SquadExample(qas_id, "q", "x y z v w", (text,) if text else (), 0, not text)
        for qas_id, text in GOLDS.items()
    )
    answers = Answers(FOUND, {}, dict(zip(GOLDS, odds, strict=True)))
    return make_data(version_2=True, examples=examples), answers


@pytest.mark.parametrize(
    ("odds", "threshold", "reported", "predictions", "best"),
    [
        ((-1.0, 0.2, 0.5, 0.7, 3.0), 0.2, 60, ["x", "", "", "", ""], 80),
        ((-1.0, 2.0, 5.0, 2.5, 6.0), 2.5, 60, ["x", "y", "", "", ""], 100),
    ],
)
def test_the_official_threshold_reproduces_both_flaws(odds, threshold, reported, predictions, best):
    data, answers = threshold_case(odds)
    metrics, found = evaluate(data, answers, official_threshold=True)
    assert metrics == {
        "exact": reported,
        "f1": reported,
        "total": 5,
        "null_score_diff_threshold": threshold,
    }
    assert list(found.values()) == predictions
    # Ours: the metrics are those of the predictions, which are those of the search.
    metrics, found = evaluate(data, answers)
    assert metrics["exact"] == metrics["f1"] == metrics["best_f1"] == best
    assert metrics["null_score_diff_threshold"] == metrics["best_f1_thresh"] == threshold
    answered = [qas_id for qas_id, text in found.items() if text]
    assert answered == [qas_id for qas_id in GOLDS if answers.null_odds[qas_id] <= threshold]
    assert (metrics["HasAns_total"], metrics["NoAns_total"], metrics["total"]) == (3, 2, 5)
    assert not any(name.startswith(("pr_", "final_")) for name in metrics)


def test_an_explicit_threshold_is_used():
    data, answers = threshold_case((-1.0, 0.2, 0.5, 0.7, 3.0))
    metrics, found = evaluate(data, answers, threshold=0.6)
    assert found == {"a": "x", "b": "y", "c": "v", "d": "", "e": ""}
    assert (metrics["f1"], metrics["null_score_diff_threshold"]) == (60, 0.6)
    assert (metrics["best_f1"], metrics["best_f1_thresh"]) == (80, 0.2)


def test_without_answers_the_threshold_is_that_of_the_settings_the_export_or_the_best_checkpoint(
    tmp_path,
):
    folder = RunFolder(str(tmp_path))
    wanted = None
    assert null_threshold(wanted, folder) == 0.0  # unknown
    save_checkpoint(folder.best, {"global_step": np.int64(10)})
    metrics = {"null_score_diff_threshold": 0.5}
    folder.add_evaluation(Evaluation(10, metrics, containers.digest(folder.best), "dev"))
    assert null_threshold(wanted, folder) == 0.5
    (tmp_path / "null_odds_threshold.json").write_text('{"null_score_diff_threshold": 0.75}')
    assert null_threshold(wanted, folder) == 0.75
    assert null_threshold(0.25, folder) == 0.25


def test_chinese_answers_are_evaluated_with_the_metrics_of_cmrc():
    answers = Answers({"q1": "韩国Nexon，"}, {})
    examples = (SquadExample("q1", "谁？", "韩国Nexon公司", ("韩国Nexon",), 0),)
    metrics, _ = evaluate(make_data(examples=examples, is_chinese=True), answers)
    assert metrics == {"exact_match": 100.0, "f1": 100.0, "average": 100.0}
    assert all(name.endswith(QuestionAnswering.percentages) for name in metrics)
    metrics, _ = evaluate(make_data(examples=examples), answers)
    assert metrics == {"exact_match": 0.0, "f1": 0.0}


def test_training_features_are_in_googles_order(tiny_config):
    task = make_task(tiny_config, version_2=False, tokenizer=WordTokenizer())
    ids = task.tokenizer.convert_tokens_to_ids(["▁what", "▁who", "▁when"])  # of q1, q2 and q3
    found = []
    for split in ("dev", "train"):
        features = task.make_features(make_data(), split)
        rows = features.batch(np.arange(len(features)), 11)["input_ids"]
        firsts = dict.fromkeys(rows[:, 1].tolist())  # a question may have several windows
        found.append([ids.index(first) + 1 for first in firsts])
        assert (np.diff(features.example_index) >= 0).all()
    # The order of random.Random(12345) for three questions.
    assert found == [[1, 2, 3], [3, 1, 2]]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_files_and_metrics_are_those_of_googles_program_for_the_same_outputs(
    shared, tmp_path, version
):
    """The files are the same byte for byte, and the metrics those of the official threshold."""
    folder = shared / "golden" / "tasks" / "squad"
    values = json.loads((folder / f"{version}_settings.json").read_text())
    data = read_squad(str(folder / f"{version}_dev.json"), is_training=False)
    settings = {name: values[name] for name in LENGTHS} | {"n_best_size": 20}
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    task = make_task(AlbertConfig(97), data.version_2, tokenizer, **settings)
    split = Split("dev", data, task.make_features(data, "dev"))
    outputs = np.load(folder / f"{version}_model_outputs.npz")
    # With those of padding, unlike `task.answer`.
    if data.version_2:
        candidates = candidates_v2(*(outputs[name] for name in task.outputs))
    else:
        candidates = candidates_v1(outputs["start_logits"], outputs["end_logits"], 20)
    answers = decode(data.examples, split.features, candidates, 20, 30)
    write_answers(str(tmp_path), answers, evaluate(data, answers, official_threshold=True)[1])
    names = {"predictions.json", "nbest_predictions.json", *["null_odds.json"] * data.version_2}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        official = (folder / f"{version}_{name}").read_text()
        assert (tmp_path / name).read_text().rstrip() == official.rstrip(), name

    answers = task.answer(split, outputs)
    metrics, predictions = evaluate(data, answers, official_threshold=True)
    assert metrics == json.loads((folder / f"{version}_metrics.json").read_text())
    assert predictions == json.loads((tmp_path / "predictions.json").read_text())
    ours, predictions = evaluate(data, answers)
    assert ours["f1"] >= metrics["f1"]
    assert ours["f1"] == pytest.approx(ours.get("best_f1", ours["f1"]))
    task.write_predictions(RunFolder(str(tmp_path)), split, outputs, step=1)
    assert predictions == json.loads((tmp_path / "predictions.json").read_text())


def test_padding_is_no_answer_whatever_its_scores(tiny_config):
    task = make_task(tiny_config, version_2=False, n_best_size=1)
    split = Split("dev", make_data(), task.make_features(make_data(), "dev"))
    logits = np.eye(31)[split.features.query_lengths + 2] - 9  # of the first word of each window
    logits[np.arange(31) >= split.features.lengths[:, None]] = 9.0
    answers = task.answer(split, {"start_logits": logits, "end_logits": logits})
    assert answers.best == {"q1": "the", "q2": "nobody", "q3": "nobody"}


def test_batches_have_room_for_a_beam(tiny_config):
    task = make_task(tiny_config, version_2=True, start_n_top=9, end_n_top=5)
    assert task.padding(Padding(31, 4)) == Padding(31, 12)
    assert task.padding(Padding(9, 4)) == Padding(9, 12)  # just enough
    assert make_task(tiny_config, False, start_n_top=9).padding(Padding(31, 4)) == Padding(31, 4)
    with pytest.raises(ValueError, match=r"--start_n_top=9, --end_n_top=5: expected at most .*=8"):
        task.padding(Padding(8, 4))


def test_a_checkpoint_is_evaluated_again_if_relevant_settings_changed(tiny_config):
    def measured_on(version_2=True, **settings):
        task = make_task(tiny_config, version_2, **settings)
        split = Split("dev", make_data(), task.make_features(make_data(), "dev"))
        return prepare(task, {"dev": split}).measured_on()

    others = {
        measured_on(version_2=False),
        measured_on(mixed_segmentation=True),
        measured_on(n_best_size=8),
        measured_on(max_answer_length=8),
        measured_on(start_n_top=8),
        measured_on(end_n_top=8),
        measured_on(null_score_diff_threshold=1.5),
        measured_on(official_threshold=True),
    }
    # How batches are padded does not matter.
    assert len({*others, measured_on(), measured_on(pad_to_multiple=1)}) == 9


@pytest.mark.parametrize("version_2", [False, True])
def test_the_version_is_chosen_by_the_user_the_model_or_the_data(tmp_path, version_2):
    trained, bare = str(tmp_path / "trained"), str(tmp_path / "bare")
    encoder = {"bert/pooler/dense/bias": np.zeros(1)}
    save_checkpoint(bare, encoder)
    head = "start_logits/dense/kernel" if version_2 else "cls/squad/output_weights"
    save_checkpoint(trained, encoder | {head: np.zeros(1)})
    same, other = make_data(version_2), make_data(version_2=not version_2)
    assert choose_version(None, trained, other, None) == version_2
    assert choose_version(None, bare, same, None) == version_2
    assert choose_version(None, None, None, same) == version_2
    assert choose_version(None, None, make_data(False), make_data(True))
    assert choose_version(not version_2, trained, same, None) != version_2
    with pytest.raises(ValueError, match="set --init_checkpoint or --version_2_with_negative"):
        choose_version(None, bare, None, None)


def test_the_version_of_a_trained_run_is_not_that_of_its_initial_checkpoint(tmp_path, tiny_config):
    initial, folder = str(tmp_path / "initial"), tmp_path / "run"
    save_checkpoint(initial, {"start_logits/dense/kernel": np.zeros(1)})
    folder.mkdir()
    save_checkpoint(str(folder / "model.ckpt-3"), {"cls/squad/output_weights": np.zeros(1)})
    settings = Settings(output_dir=str(folder), init_checkpoint=initial, **LENGTHS)
    for trained, version_2 in ((RunFolder(str(folder)), False), (None, True)):
        source = types.SimpleNamespace(
            config=tiny_config, unchecked_tokenizer=WordTokenizer(), trained=trained
        )
        task = QuestionAnswering.open(settings, source)
        assert task.version_2 is version_2


def test_unanswerable_questions_cannot_be_evaluated_with_the_head_of_version_1():
    with pytest.raises(ValueError, match=r"questions\.json has unanswerable questions"):
        choose_version(False, None, None, make_data(version_2=True))
    assert not choose_version(False, None, None, make_data(version_2=True, has_labels=False))
