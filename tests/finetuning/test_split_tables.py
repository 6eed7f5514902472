"""Where the rows of a split are, and the dev split that is made of training data."""

from __future__ import annotations

import pytest

from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.splits import (
    Layout,
    MissingSplitError,
    SplitTables,
    divide,
    find_name,
    read_splits,
)
from albert_tf.tables import open_table

OLD = Layout(["MRPC/train.tsv", "train.tsv"], takes_first=True, configurations=["mrpc"])


@pytest.fixture(name="write")
def make_write(tmp_path):
    def write(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'{{"text": "{name}"}}\n')
        return str(tmp_path)

    return write


def path_of(opened):
    table, name = opened
    return table.path, name


def test_the_first_of_several_files_is_only_taken_where_it_is_meant(tmp_path):
    names = ("CoLA/dev.tsv", "dev.tsv")
    assert find_name(str(tmp_path), names) is None
    (tmp_path / "dev.tsv").write_text("a")
    assert find_name(str(tmp_path), names) == "dev.tsv"
    (tmp_path / "CoLA").mkdir()
    (tmp_path / "CoLA" / "dev.tsv").write_text("a")
    assert find_name(str(tmp_path), names, takes_first=True) == "CoLA/dev.tsv"
    with pytest.raises(ValueError, match=r"contains CoLA/dev\.tsv and dev\.tsv: keep only one"):
        find_name(str(tmp_path), names)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["MRPC/train.tsv", "train.tsv", "mrpc/train.jsonl"], ("MRPC/train.tsv", "MRPC/train.tsv")),
        (["train.tsv", "mrpc/train.jsonl"], ("train.tsv", "train.tsv")),
        (["mrpc/train.jsonl", "train.jsonl"], ("mrpc/train.jsonl", "")),
        (["mrpc/notes.txt", "train.jsonl"], ("train.jsonl", "")),
    ],
)
def test_old_names_come_first_then_the_configuration_then_the_folder(write, names, found):
    folder = write(*names)
    path, name = path_of(SplitTables(folder).open("train", OLD))
    assert (path.removeprefix(f"{folder}/"), name) == found


def test_flags_and_rows_of_python_replace_the_folder(write):
    folder = write("train.tsv", "x.jsonl", "y.jsonl")
    named = SplitTables(folder, {"train": f"{folder}/x.jsonl,{folder}/y.jsonl", "dev": ""})
    path, name = path_of(named.open("train", OLD))
    assert (path, name) == (f"{folder}/x.jsonl … y.jsonl", "")
    table = open_table(f"{folder}/x.jsonl")
    other = open_table(f"{folder}/y.jsonl")
    given = SplitTables(folder, given={"train": table, "valid_a": table, "valid_b": other})
    assert given.open("train", OLD) == (table, "")
    assert given.open("dev", Layout(suffix="b")) == (other, "")
    with pytest.raises(MissingSplitError, match="no test data: the argument `data` has train, val"):
        given.open("test", OLD)
    with pytest.raises(ValueError, match="`data` has valid_a and valid_b: pass only one"):
        given.open("dev", OLD)


def test_a_missing_split_is_said_with_what_is_there(write):
    folder = write("train.jsonl")
    said = (
        rf"no dev data in {folder}: it has train \(train\.jsonl\)\. Expected dev\.tsv, or a file "
        "with the word dev in its name that ends in .* .tsv; --dev_fraction=0.1 takes a tenth"
    )
    with pytest.raises(MissingSplitError, match=said):
        SplitTables(folder).open("dev", Layout(["dev.tsv"]))
    said = r"\. Expected a file with the word test in its name that ends in \.a \.b\.$"
    with pytest.raises(MissingSplitError, match=said):
        SplitTables(folder).open("test", Layout(endings=(".a", ".b")))
    with pytest.raises(MissingSplitError, match="no train data: set --data_dir or --train_file"):
        SplitTables().open("train", OLD)


def test_a_dev_split_is_the_same_part_of_the_training_data_each_time():
    whole = Examples("all.csv", [f"text {n}" for n in range(40)], has_labels=True)
    train, dev = divide(whole, 0.25)
    assert (len(train), len(dev), dev.has_labels) == (30, 10, True)
    assert sorted([*train.examples, *dev.examples]) == sorted(whole.examples)
    for part in (train, dev):
        assert part.examples == sorted(part.examples, key=whole.examples.index)
    assert divide(whole, 0.25) == (train, dev)
    passages = divide(whole, 0.2, group_of=lambda text: text[5])  # all with the same first digit
    assert not {text[5] for text in passages[0].examples} & {t[5] for t in passages[1].examples}
    for fraction, phase in ((0.01, "evaluation"), (0.999, "training")):
        with pytest.raises(ValueError, match=f"of 40 examples in all.csv leaves none for {phase}"):
            divide(whole, fraction)


def test_a_dev_split_is_made_only_where_there_is_none():
    whole = Examples("all.csv", list("abcdefgh"))
    there = {"train": whole, "test": Examples("test.csv", ["x"])}

    def read(split):
        if split not in there:
            raise MissingSplitError(split)
        return there[split]

    train, dev = divide(whole, 0.25)
    assert read_splits(["train", "dev"], 0.25, read) == {"train": train, "dev": dev}
    assert read_splits(["dev"], 0.25, read, {"train": whole}) == {"dev": dev}
    assert read_splits(["test"], 0.25, read) == {"test": there["test"]}
    with pytest.raises(MissingSplitError):
        read_splits(["train", "dev"], 0.0, read)
    there["dev"] = Examples("dev.csv", ["y"])
    with pytest.raises(ValueError, match=r"--dev_fraction: there are dev data, dev\.csv"):
        read_splits(["train"], 0.25, read)
