"""Metrics of question answering are those of the official scripts."""

import numpy as np
import pytest

from albert_tf.finetuning.squad.metrics import (
    best_thresholds,
    cmrc_exact_match,
    cmrc_f1,
    evaluate_cmrc,
    evaluate_v1,
    evaluate_v2,
    mixed_segmentation,
)

WORDS = ["the", "cat", "Cat.", "sat", "a", "mat,", "on", "an", "U.S.", "old-man", "…", "42"]


def random_data(seed, count=41, unanswerable=0.4):
    rng = np.random.default_rng(seed)

    def text(least):
        return " ".join(rng.choice(WORDS, rng.integers(least, 5)))

    golds, predictions, odds = {}, {}, {}
    for number in range(count):
        is_none = rng.random() < unanswerable
        qas_id = f"q{number}"
        golds[qas_id] = [] if is_none else [text(0) for _ in range(rng.integers(1, 4))]
        guess = golds[qas_id][0] if golds[qas_id] and rng.random() < 0.5 else text(0)
        predictions[qas_id] = guess
        odds[qas_id] = float(rng.integers(-6, 7)) / 4  # many ties
    return golds, predictions, odds


def as_dataset(golds):
    questions = [
        {"id": qas_id, "answers": [{"text": text} for text in answers]}
        for qas_id, answers in golds.items()
    ]
    return [{"paragraphs": [{"qas": questions}]}]


def test_texts_without_words():
    # SQuAD 1.1 counts common words, of which there are none; in SQuAD 2.0 this means no answer.
    assert evaluate_v1({"q": ["the"]}, {"q": ""}) == {"exact_match": 100.0, "f1": 0.0}
    assert evaluate_v2({"q": ["the"]}, {"q": ""})["f1"] == 100


@pytest.mark.parametrize("seed", range(3))
def test_squad_1_scores_are_those_of_the_official_script(seed):
    script = pytest.importorskip("official.nlp.tools.squad_evaluate_v1_1")
    golds, predictions, _ = random_data(seed, unanswerable=0)
    ours = evaluate_v1(golds, predictions)
    theirs = script.evaluate(as_dataset(golds), predictions)
    assert ours["exact_match"] == pytest.approx(100 * theirs["exact_match"], abs=1e-9)
    assert ours["f1"] == pytest.approx(100 * theirs["final_f1"], abs=1e-9)


def test_a_question_without_a_prediction_is_wrong_in_squad_1():
    golds = {"a": ["x"], "b": ["y"], "c": ["z"]}
    assert evaluate_v1(golds, {"a": "x", "c": "w", "other": "v"})["f1"] == pytest.approx(100 / 3)


def test_questions_without_answers_cannot_be_scored():
    with pytest.raises(ValueError, match="1 of 2 questions have no gold answer; the first is b"):
        evaluate_v1({"a": ["x"], "b": []}, {"a": "x"})
    with pytest.raises(ValueError, match="0 of 0 questions"):
        evaluate_cmrc({}, {})


@pytest.mark.parametrize("has_odds", [False, True])
@pytest.mark.parametrize(("seed", "unanswerable"), [(0, 0.0), (1, 0.4), (2, 0.4), (3, 1.0)])
def test_squad_2_metrics_are_those_of_the_official_script(seed, unanswerable, has_odds):
    script = pytest.importorskip("official.nlp.tools.squad_evaluate_v2_0")
    golds, predictions, odds = random_data(seed, unanswerable=unanswerable)
    for name in ("q3", "q29"):  # without predictions, which the script does not count
        del predictions[name], odds[name]
    predictions |= {"q5": "", "q7": "the"}
    given = odds if has_odds else None
    theirs = script.evaluate(as_dataset(golds), predictions, given)
    expected = {
        name: value
        for name, value in theirs.items()
        if not name.startswith("pr_") and (has_odds or not name.startswith("final_"))
    }
    assert evaluate_v2(golds, predictions, given) == expected


def test_the_best_scores_of_a_question_are_those_without_a_threshold():
    golds, predictions, _ = random_data(3, count=101, unanswerable=0)
    for name in golds:
        gold, prediction = {name: golds[name]}, {name: predictions[name]}
        ours, theirs = best_thresholds(gold, prediction, {name: 0.0}), evaluate_v2(gold, prediction)
        assert (ours["best_exact"], ours["best_f1"]) == (theirs["exact"], theirs["f1"])


@pytest.mark.parametrize("seed", range(3))
def test_no_threshold_is_better_than_the_best(seed):
    golds, predictions, odds = random_data(seed)

    def mean(threshold):
        shifted = {qas_id: value - threshold + 1 for qas_id, value in odds.items()}
        return evaluate_v2(golds, predictions, shifted)["f1"]  # with the threshold 1

    found = best_thresholds(golds, predictions, odds)
    assert mean(found["best_f1_thresh"]) == pytest.approx(found["best_f1"])
    best = max(mean(value) for value in [-99, *odds.values()])
    assert found["best_f1"] == pytest.approx(best)


def test_of_equally_good_thresholds_the_lowest_is_found():
    # Answering b and c as well wins one question and loses one.
    golds = {"a": ["x"], "b": [], "c": ["y"]}
    predictions = {"a": "x", "b": "z", "c": "y"}
    found = best_thresholds(golds, predictions, {"a": -1.0, "b": 0.5, "c": 2.0})
    assert (found["best_exact"], found["best_exact_thresh"]) == (pytest.approx(200 / 3), -1.0)
    # Questions of equal odds are answered together, or not at all.
    found = best_thresholds(golds, predictions, {"a": 0.5, "b": 0.5, "c": 2.0})
    assert (found["best_f1"], found["best_f1_thresh"]) == (pytest.approx(200 / 3), 2.0)


@pytest.mark.parametrize(
    ("golds", "predictions", "best"),
    [
        ({"a": ["x"]}, {"a": "x"}, (100.0, 0.25)),  # all have an answer
        ({"a": ["x"]}, {"a": "y"}, (0.0, -0.75)),
        ({"a": []}, {"a": "x"}, (100.0, -0.75)),  # none has one
        ({"a": ["x", "the"]}, {"a": "x"}, (100.0, 0.25)),  # an answer without words does not count
    ],
)
def test_one_question_decides_the_threshold(golds, predictions, best):
    found = best_thresholds(golds, predictions, {"a": 0.25})
    assert (found["best_exact"], found["best_exact_thresh"]) == best
    assert (found["best_f1"], found["best_f1_thresh"]) == best


def test_if_nothing_should_be_answered_the_threshold_is_below_all_odds():
    golds, predictions = {"a": [], "b": []}, {"a": "x", "b": "y"}
    odds = {"a": -3.0, "b": 0.5}
    found = best_thresholds(golds, predictions, odds)
    assert found["best_f1"] == 100
    assert found["best_f1_thresh"] < -3
    # The official script returns 0, which would answer the first question.
    assert evaluate_v2(golds, predictions, odds)["final_f1_thresh"] == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("由韩国Nexon开发", ["由", "韩", "国", "nexon", "开", "发"]),
        ("1998年5月", ["1998", "年", "5", "月"]),
        ("《跑跑》：2V2、4V4", ["跑", "跑", "2v24v4"]),  # without signs, neighbors are joined
        ("6.5%", ["6.5", "%"]),
        ("About $1,000, or so.", ["about", "$", "1,000", ",", "or", "so", "."]),
        ("Don't; it's 'a' U.S. firm…", "do n't ; it 's ' a ' u.s. firm…".split()),
        ("(Windows 98 SE)", ["(", "windows", "98", "se", ")"]),
        ("wait... 1–2", ["wait", "...", "1", "–", "2"]),
        ("，。", []),
    ],
)
def test_chinese_is_split_into_characters_and_other_text_into_words(text, expected):
    assert mixed_segmentation(text) == expected


def test_cmrc_counts_the_longest_common_run():
    # found: 韩 国 nexon; wanted: nexon 开 发. In common: nexon.
    assert cmrc_f1("韩国Nexon", "Nexon开发") == pytest.approx(1 / 3)
    # In another order, the same characters have one common run of two.
    assert cmrc_f1("北京市在中国", "中国北京市") == pytest.approx(2 * 0.5 * 0.6 / 1.1)
    assert cmrc_f1("北京", "上海") == 0
    assert cmrc_f1("", "上海") == cmrc_f1("。", "。") == 0
    # Also characters that occur often in a long text count.
    assert cmrc_f1("国", "国" * 250) == pytest.approx(2 / 251)


def test_cmrc_matches_without_punctuation():
    assert cmrc_exact_match(" “北京”。", "北京") == 1
    assert cmrc_exact_match("NEXON，", "nexon") == 1
    assert cmrc_exact_match("北京(市)", "北京市") == 0  # not in its list of signs
    assert cmrc_exact_match("北京…", "北京") == 0


def test_cmrc_uses_the_best_answer_and_averages_both_metrics():
    golds = {"a": ["北京市", "北京"], "b": ["上海"], "c": ["广州市"]}
    result = evaluate_cmrc(golds, {"a": "北京", "b": "海", "d": "x"})
    assert result["exact_match"] == pytest.approx(100 / 3)
    assert result["f1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert result["average"] == pytest.approx((result["exact_match"] + result["f1"]) / 2)
