"""What identifies the examples of a split."""

import dataclasses

import pytest

from albert_tf.finetuning.classification.encoding import Example
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.token_classification.sentences import Sentence

EXAMPLES = [Example("7", "a", "b", "c", 1), Sentence(1, ("a", "b"), ("O", "B-X"))]
EXAMPLES += [Question("7", "a", "b", ("c", "d"), 1, "high"), SquadExample("7", "a", "b", ("b",), 0)]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_checksum_depends_on_what_is_learned_and_not_on_ids_and_lines(example):
    def checksum(*examples):
        return Examples("data.tsv", list(examples)).checksum()

    fields = {field.name for field in dataclasses.fields(example)}
    changed = {name: dataclasses.replace(example, **{name: "other"}) for name in fields}
    found = {name: checksum(other) for name, other in changed.items()}
    for name in fields & {"line", "row", "number", "guid", "example_id", "qas_id"}:
        assert found.pop(name) == checksum(example)
    assert len({*found.values(), checksum(example), checksum(example, example)}) == len(found) + 2
    with pytest.raises(ValueError, match=r"data\.tsv: contains no example"):
        checksum()
