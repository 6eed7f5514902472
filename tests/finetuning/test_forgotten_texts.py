"""Training data that are tokenized while they are read have the features of those that are kept."""

import functools
import json
import pickle
import re

import numpy as np
import pytest

from albert_tf.finetuning import batching, examples
from albert_tf.finetuning.examples import EncodedExamples
from albert_tf.finetuning.race import collecting
from albert_tf.finetuning.race import reading as questions
from albert_tf.finetuning.race.task import MultipleChoice
from albert_tf.finetuning.splits import DEV, TRAIN
from albert_tf.finetuning.squad import reading as answers
from albert_tf.finetuning.squad import windows
from albert_tf.finetuning.squad.task import QuestionAnswering
from albert_tf.finetuning.token_classification import reading as sentences
from albert_tf.finetuning.token_classification.task import TokenClassifier

COUNT = 9  # examples, each with a word such as SAIL3, and those about a text with LAND3
LENGTH = 12
WINDOWS = {"max_query_length": 4, "doc_stride": 3, "num_workers": 1}
CHOICE = {"task_name": "choice"}


def write_columns(folder, count):
    words = [f"the river {'boat ' * (n % 5)}SAIL{n}" for n in range(count)]
    blocks = [
        "".join(f"{word} {'B-LOC' if word == 'river' else 'O'}\n" for word in text.split())
        for text in words
    ]
    (folder / "train.txt").write_text("\n".join(blocks))


def write_sentences(folder, count):
    rows = [
        {"tokens": ["river"] * (n + 1) + [f"SAIL{n}"], "tags": ["O"] * n + ["B-LOC", "O"]}
        for n in range(count)
    ]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def write_questions(folder, count, first=0):
    rows = [
        {
            "passage": f"the river {'boat ' * (n // 2)}LAND{n // 2}",
            "question": f"the {'river ' * (n % 3)}SAIL{n}",
            "options": ["boat", "the SEA", "river"][: 2 + n % 2],
            "label": 2 * (n % 2) + first,
        }
        for n in range(count)
    ]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))


def write_articles(folder, count):
    for level in ("middle", "high"):
        (folder / "RACE" / "train" / level).mkdir(parents=True, exist_ok=True)
    for n in range(count):
        article = {
            "article": f"the river {'boat ' * n}LAND{n}",
            "questions": [f"the _ SAIL{n}"],
            "options": [["boat", "the SEA", "river", "sea"]],
            "answers": ["ABCD"[n % 4]],
        }
        path = folder / "RACE" / "train" / ("middle" if n % 2 else "high") / f"{n}.txt"
        path.write_text(json.dumps(article))


def paragraphs_of(count):
    """Yields contexts with two questions each, of which every fourth has no answer."""
    for n in range(0, count, 2):
        context = f"{'the boat ' * (n + 1)}LAND{n}"
        yield (
            context,
            [
                {
                    "id": str(number),
                    "question": f"the {'river ' * (number % 3)}SAIL{number}",
                    "answers": [{"text": "boat", "answer_start": 4}] if number % 4 else [],
                    "is_impossible": number % 4 == 0,
                }
                for number in range(n, min(n + 2, count))
            ],
        )


def write_squad(folder, count):
    paragraphs = [{"context": context, "qas": qas} for context, qas in paragraphs_of(count)]
    content = {"data": [{"paragraphs": paragraphs}], "version": "v2.0"}
    (folder / "train.json").write_text(json.dumps(content))


def write_answers(folder, count):
    rows = [
        {**qa, "context": context} for context, qas in paragraphs_of(count) for qa in reversed(qas)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


# Form of data → what writes it, what reads it, its task, and settings.
FORMS = {
    "columns": (write_columns, sentences.read_data, TokenClassifier, {}),
    "sentences": (write_sentences, sentences.read_data, TokenClassifier, {}),
    "squad": (write_squad, answers.read_data, QuestionAnswering, WINDOWS),
    "answers": (write_answers, answers.read_data, QuestionAnswering, WINDOWS),
    "race": (write_articles, questions.read_data, MultipleChoice, {}),
    "choice": (write_questions, questions.read_data, MultipleChoice, CHOICE),
    # Which option 1 is, a later label tells.
    "choice from 1": (
        *(functools.partial(write_questions, first=1), questions.read_data),
        *(MultipleChoice, CHOICE),
    ),
}


def read_train(form, folder, config, tokenizer, monkeypatch, forgets, **values):
    """Returns the task with its data, of which few examples are in memory at a time."""
    monkeypatch.setattr(examples, "EXAMPLES_AT_ONCE", 4)
    monkeypatch.setattr(windows, "CHARS_AT_ONCE", 60)
    for module in (examples, collecting):
        monkeypatch.setattr(module, "LOOKED_AT", 3)
    write, read, task_class, others = FORMS[form]
    write(folder, COUNT)
    settings = task_class.settings_class(
        data_dir=str(folder),
        output_dir=str(folder / "out"),
        max_seq_length=LENGTH,
        **{"do_train": True, "do_eval": False} | others | values,
    )
    data = read(settings, tokenizer=tokenizer if forgets else None)
    version = {"version_2": True} if task_class is QuestionAnswering else {}
    return task_class(settings, config, tokenizer, data, **version)


SPLITS = pytest.mark.parametrize("values", [{}, {"dev_fraction": 0.3, "do_eval": True}], ids=repr)


@pytest.fixture(params=FORMS)
def both(request, tmp_path, monkeypatch, tiny_config, toy_tokenizer, values):
    """Two tasks of the same data: one that keeps its texts, and one that forgets them."""
    arguments = request.param, tmp_path, tiny_config, toy_tokenizer, monkeypatch
    return [read_train(*arguments, forgets, **values) for forgets in (False, True)]


@SPLITS
def test_features_and_checksums_are_the_same_whether_texts_are_kept_or_not(both, values):
    kept, forgetting = both
    assert kept.labels == forgetting.labels
    assert list(kept.data) == list(forgetting.data)
    assert (DEV in kept.data) == bool(values)
    for split, expected in kept.data.items():
        found = forgetting.data[split]
        assert isinstance(found, EncodedExamples) == (split == TRAIN)
        assert (len(found), found.has_labels) == (len(expected), expected.has_labels)
        assert found.checksum() == expected.checksum()
        assert kept.checksum(expected) == forgetting.checksum(found)
        theirs, ours = (task.make_features(task.data[split], split) for task in (kept, forgetting))
        assert batching.checksum(ours, LENGTH) == batching.checksum(theirs, LENGTH)
        np.testing.assert_array_equal(ours.lengths, theirs.lengths)


@SPLITS
def test_only_the_first_training_texts_are_kept(both):
    kept, forgetting = both
    kept, forgetting = kept.data[TRAIN], forgetting.data[TRAIN]
    assert list(forgetting.examples) == list(kept.examples[:3])
    words, known, all_words = (
        set(re.findall(rb"SAIL\d|LAND\d", pickle.dumps(data)))
        for data in (forgetting, forgetting.examples, kept)
    )
    assert words == known
    assert len(known) < len(all_words)
