"""The outputs that are kept: those of the best and of the last checkpoint."""

from albert_tf.finetuning.dev_outputs import DevOutputs


def test_the_first_of_equally_good_checkpoints_and_the_last_are_kept():
    kept = DevOutputs()
    added = {}
    for name, metric, expected in [
        ("a", 0.5, "a"),
        ("b", 0.25, "ab"),
        ("c", 0.5, "ac"),  # as good as a, which stays
        ("d", 0.75, "ad"),  # the best before it, and itself
        ("e", -1.0, "de"),  # undefined
        ("f", 0.75, "df"),
    ]:
        added[name] = {"outputs": name}
        kept.add(name, metric, added[name])
        assert [n for n in added if kept.get(n) is added[n]] == list(expected)
        assert all(kept.get(n) is None for n in added if n not in expected)
