"""The outputs that are kept: those of the best and of the last checkpoint."""

import types

import numpy as np
import tensorflow as tf

from albert_tf import race
from albert_tf.finetuning.engine import FineTuning
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.splits import Split
from albert_tf.finetuning.token_sequences import TokenSequences


def test_the_first_of_equally_good_checkpoints_and_the_last_are_kept(monkeypatch):
    features = TokenSequences.pack([([2, 3], 2)], {"label_ids": np.zeros(1, np.int32)})
    dev = Split("dev", types.SimpleNamespace(), features)
    task = MultipleChoice(race.Settings(data_dir="data", output_dir="out"), None, None)
    engine = FineTuning(task, {"dev": dev}, tf.distribute.get_strategy())
    monkeypatch.setattr(engine, "compute_outputs", lambda model, split: model)
    monkeypatch.setattr(
        task, "measure", lambda split, outputs, size: {"eval_accuracy": outputs["metric"]}
    )
    added = {}
    for name, metric, expected in [
        ("a", 0.5, "a"),
        ("b", 0.25, "ab"),
        ("c", 0.5, "ac"),  # as good as a, which stays
        ("d", 0.75, "ad"),  # the best before it, and itself
        ("e", -1.0, "de"),  # undefined
        ("f", 0.75, "df"),
    ]:
        added[name] = {"metric": metric}
        engine.compute_metrics(added[name], name)
        kept = [n for n in added if engine.known_outputs(dev, n) is added[n]]
        assert kept == list(expected)
        assert all(engine.known_outputs(dev, n) is None for n in added if n not in expected)
