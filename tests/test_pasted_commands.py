"""The commands of docs/commands.md, of other projects' READMEs, of ours and of guides, as pasted.

Each block of another project runs in a copy of a user's repository, in the folder that has that
project's names, with the models and data that the commands name; all of them toys. The blocks of a
guide, and the cells of a notebook, run one after the other in one copy, where released models are
only in the cache of `albert download`. What is appended to a command is in `APPENDED`: it makes
runs of hours short, and batches fit the toy data.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pydoc_data.topics import topics

import fsspec
import pytest

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.data import train_vocabulary
from albert_tf.finetuning.classification.tasks import TASKS
from albert_tf.model.config import AlbertConfig
from tests import object_store_servers
from tests.checkpoints.checkpoint_samples import random_weights
from tests.cli.fine_tuning_programs import (
    ANSWERABLE,
    CHOICES,
    PASSAGE,
    QUESTIONS,
    write_article,
    write_squad,
)
from tests.conftest import ROOT, TINY_SHAPE
from tests.data_guide_files import write_guide_data
from tests.pages import pages_in_the_navigation

README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
GOOGLE, ALBERT_ZH = "compat/google", "compat/albert_zh"
# Folder and commands of each block.
BLOCKS = [
    (folder, block)
    for folder, part in zip((GOOGLE, ALBERT_ZH), TEXT.split("\n## ")[1:], strict=True)
    for block in re.findall(r"^```bash\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
]
# The program that a command names → flags put at its end.
APPENDED = {
    r"run_pretraining": "--train_batch_size=2 --num_train_steps=2 --eval_batch_size=2 "
    "--max_eval_steps=1",
    r"albert\.run_classifier|run_glue\.sh": "--train_batch_size=2 --train_step=2 --noplots",
    r"run_classifier(_clue|_lcqmc|_sp_google)?\.(py|sh)": "--train_batch_size=2 "
    "--num_train_epochs=1 --noplots",
    r"run_squad": "--train_batch_size=2 --num_train_epochs=1 --noplots",
    r"run_race": "--train_batch_size=2 --train_step=2 --noplots",
    r"albert classifier|run_token_classification": "--train_batch_size=2 --num_train_epochs=1 "
    "--noplots",
    r"train-vocabulary": "--vocab_size=500",
}
# All pages with blocks of Bash or Python. tests/test_shell_blocks.py reads those in the language
# "sh", which cannot run here.
GUIDES = [
    *(
        page
        for page in pages_in_the_navigation()
        if page.name != "commands.md"
        and re.search(r"^```(bash|python)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ),
    *sorted((ROOT / "examples").glob("*.ipynb")),
]
# Folder of a toy → name of the release in the cache of downloads.
DOWNLOADED = {
    f"{GOOGLE}/albert_base": "albert_base_v2",
    f"{ALBERT_ZH}/albert_tiny": "albert_tiny_489k",
    f"{ALBERT_ZH}/albert_tiny_zh": "albert_tiny_zh_google",
}
# What installs or downloads something, and what uses it; CI runs `make demo`.
SKIPPED = r"make demo|\. \.venv/|hf download|albert predict --model_dir=demo/"
FINE_TUNE = (
    "python run_classifier.py --task_name=MRPC --data_dir=glue --init_checkpoint=albert_base_v2 "
    "--output_dir=work/mrpc --max_seq_length=16"
)
README_PRE_TRAINING = re.findall(r"^```bash\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[-1]
# What a page says that its reader has, besides downloads.
GIVEN = {
    "deploy": f"{FINE_TUNE} --do_train",
    "devices": README_PRE_TRAINING[: README_PRE_TRAINING.index("python run_pretraining.py")],
    "prediction": "python run_classifier.py --task_name=lcqmc --data_dir=lcqmc "
    "--init_checkpoint=albert_tiny_zh --output_dir=lcqmc_model --max_seq_length=16\n"
    "python run_squad.py --init_checkpoint=albert_base_v2 --train_file=train-v1.1.json "
    "--predict_file=dev-v1.1.json --output_dir=squad_model --max_seq_length=96 --do_train",
    "serve": f"{FINE_TUNE} --do_train --do_eval --export_dir=work/served\n"
    "printf 'One.\\tTwo.\\n' > pairs.tsv",
    "remote_files": "model=$(albert download albert_base_v2)\n"
    "python create_pretraining_data.py --input_file=text.txt "
    "--spm_model_file=$model/30k-clean.model --output_file=records/train.tfrecord@2",
    "serving": FINE_TUNE,
}
SHAPE = TINY_SHAPE | {"num_hidden_layers": 2, "num_hidden_groups": 1, "type_vocab_size": 2}


def lines_of(block):
    """The commands of a block that can be run; without `nohup … &`, which would not wait."""
    for line in block.replace("\\\n", " ").splitlines():
        if re.match(SKIPPED, line):
            continue
        command = line.removeprefix("nohup ").removesuffix("&").strip()
        added = next((flags for name, flags in APPENDED.items() if re.search(name, command)), "")
        yield f"{command} {added}".rstrip()


def write_tsv(path, columns, labels, has_header):
    """Rows in which every cell is text but the label's."""
    used = [n for n in dataclasses.astuple(columns) if n is not None]
    width = max(used) + 1 + (-1 in used)
    label = None if columns.label is None else columns.label % width
    header = ["label" if n == label else f"column {n}" for n in range(width)]
    rows = [header] if has_header else []
    for number in range(4):
        row = [f"the river {number} {n}" for n in range(width)]
        if label is not None:
            row[label] = labels[number % len(labels)]
        if columns.guid is not None:
            row[columns.guid] = str(number)
        rows.append(row)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def write_json_lines(path, name, columns, labels):
    with path.open("w", encoding="utf-8") as stream:
        for number in range(4):
            row = {columns.guid: number, columns.text_a: f"今天天气{number}好"}
            if columns.text_b:
                row[columns.text_b] = "明天下雨"
            if "test" not in path.name:
                row["label"] = labels[number % len(labels)]
            if name == "wsc":
                spans = {"span1_text": "今天", "span1_index": 0}
                row["target"] = spans | {"span2_text": "天气", "span2_index": 2}
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_tasks(folder):
    """GLUE, CLUE and LCQMC, with four examples a file."""
    for task in TASKS.values():
        parent = {"LCQMC": "lcqmc"}.get(task.folder, f"glue/{task.folder}")
        if task.clue_fields is not None:
            parent = f"clue/{task.folder}"
        (folder / parent).mkdir(parents=True, exist_ok=True)
        labels = task.labels or ["1.5", "2.5"]
        for sources in task.splits.values():
            source, path = sources[0], folder / parent / sources[0].file
            if path.suffix == ".json" and task.name != "copa":
                write_json_lines(path, task.name, source.columns, labels)
            elif path.suffix in (".tsv", ".txt") and source.only is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_tsv(path, source.columns, labels, bool(source.has_header))


def write_model(folder, config_name, checkpoint, vocab_size, **changes):
    folder.mkdir(exist_ok=True)
    shape = SHAPE | {"vocab_size": vocab_size, "max_position_embeddings": 512}
    config = AlbertConfig(**shape | changes)
    weights = {name: 0.05 * value for name, value in random_weights(config).items()}
    save_checkpoint(str(folder / checkpoint), weights)
    config.to_json_file(str(folder / config_name))


def write_chinese_models(folder, sample):
    """The folders of albert_zh's README: models, config and vocabulary of a clone of albert_zh."""
    (folder / "albert_config").mkdir()
    vocabulary = folder / "albert_config" / "vocab"
    train_vocabulary.run(
        train_vocabulary.Settings(
            str(sample),
            str(vocabulary),
            "wordpiece",
            21128,
            hard_vocab_limit=False,
            character_coverage=1.0,
        )
    )
    size = len(vocabulary.with_suffix(".txt").read_text(encoding="utf-8").splitlines())
    for name, layout in (("tiny_zh", "albert_zh"), ("small_zh_google", "google")):
        model = folder / f"albert_{name}"
        config = "albert_config_" + name.replace("_zh", "") + ".json"
        write_model(model, config, "albert_model.ckpt", size, layout=layout)
        shutil.copy(vocabulary.with_suffix(".txt"), model)
        shutil.copy(model / config, folder / "albert_config")
    shutil.copytree(folder / "albert_tiny_zh", folder / "albert_tiny")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The folder of a user who cloned this repository and has models and data."""
    home = tmp_path_factory.mktemp("home") / "albert"
    names = ["albert_tf", "compat", "configs", "data", "examples"]
    leave_out = shutil.ignore_patterns("__pycache__", "*.tfrecord*", "vocab_sample_zh.txt")
    for name in names:
        shutil.copytree(ROOT / name, home / name, ignore=leave_out)
    for path in itertools.chain(ROOT.glob("*.py"), ROOT.glob("*.sh"), [ROOT / "pyproject.toml"]):
        shutil.copy(path, home)
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, home)
    write_google(home / GOOGLE)
    write_albert_zh(home / ALBERT_ZH, home / "data" / "sample_zh.txt")
    # The guides run in the root folder, which has the data, and no model.
    no_programs = shutil.ignore_patterns("*.py", "*.sh", "albert*")
    for place in (ALBERT_ZH, GOOGLE):
        shutil.copytree(home / place, home, dirs_exist_ok=True, ignore=no_programs)
    for name, release in DOWNLOADED.items():
        shutil.copytree(home / name, home.parent / "cache" / release)
    return home


def write_google(home):
    """The models and data of the commands of google-research/albert."""
    text = "\n\n".join(topics[name].replace(". ", ".\n") for name in sorted(topics)[:20])
    (home / "text.txt").write_text(text, encoding="utf-8")
    (home / "all.txt").write_text(text, encoding="utf-8")
    model = home / "albert_base"
    write_model(model, "albert_config.json", "model.ckpt-best", 300)
    prefix = str(model / "30k-clean")
    train_vocabulary.run(train_vocabulary.Settings(str(home / "text.txt"), prefix, vocab_size=300))
    write_tasks(home)
    shutil.copytree(home / "glue", model / "glue")
    for split in ("train", "dev"):
        write_squad(home / f"{split}-v1.1.json", ANSWERABLE)
        write_squad(home / f"{split}-v2.0.json", QUESTIONS)
        write_article(home / "data" / "RACE" / split / "middle", "m", PASSAGE, CHOICES)


def write_albert_zh(home, sample):
    """The models and data of the commands of albert_zh."""
    (home / "raw_text").mkdir()
    for number in (0, 1):
        shutil.copy(sample, home / "raw_text" / f"web_text_zh_{number}.txt")
    (home / "data").mkdir()
    shutil.copy(sample, home / "text.txt")
    write_tasks(home)
    write_chinese_models(home, sample)


@pytest.fixture
def run_in_home(home, tmp_path):
    """Runs a block in a fresh copy of the user's folder, where `python` is this one."""
    folder = tmp_path / "albert"
    shutil.copytree(home, folder)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in (("python", ""), ("python3", ""), ("albert", "-m albert_tf")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    added = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "ALBERT_CACHE": str(home.parent / "cache"),
        "MPLBACKEND": "agg",
    }

    def run(commands, where="."):
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join(commands)],
            cwd=folder / where,
            env=kept | added,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{done.args[-1]}\n{done.stdout[-5000:]}"
        assert "Traceback" not in done.stdout

    return run


@pytest.fixture
def bucket(home):
    """A bucket of S3 with a text and a vocabulary."""
    with object_store_servers.running("s3"):
        store = fsspec.filesystem("s3")
        store.put_file(str(home / "text.txt"), "bucket/text1.txt")
        vocabulary = home.parent / "cache" / "albert_base_v2" / "30k-clean.model"
        store.put_file(str(vocabulary), "bucket/30k.model")
        yield


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("where", "block"), BLOCKS)
def test_the_commands_run_as_they_are_pasted(where, block, run_in_home):
    run_in_home(lines_of(block), where)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # the guide to data trains thirteen times
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_the_blocks_of_a_guide_run(page, run_in_home, tmp_path, request):
    blocks = blocks_of(page)
    commands = [line for language, body in blocks if language == "bash" for line in lines_of(body)]
    python = "".join(body for language, body in blocks if language == "python")
    if page.stem == "data":
        write_guide_data(tmp_path / "albert")
    elif page.stem == "remote_files":
        request.getfixturevalue("bucket")
    given = lines_of(GIVEN.get(page.stem, ""))
    run_in_home([*given, *commands, f"python -c {shlex.quote(python)}"])


def blocks_of(page):
    """The language and the text of each block; of a notebook, cells are blocks of Python."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        fence = {"code": "```python\n{}\n```\n", "markdown": "{}\n"}
        text = "".join(fence[x["cell_type"]].format("".join(x["source"])) for x in cells)
    return re.findall(r"^```(bash|python)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
