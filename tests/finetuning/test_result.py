"""The result of a fine-tuning program is printed as its text."""

from albert_tf.finetuning.result import FineTuningResult


def test_a_result_is_printed_as_its_text():
    result = FineTuningResult("out", 7, {"eval_accuracy": 0.5}, "eval_accuracy = 0.5")
    assert str(result) == "eval_accuracy = 0.5"
