"""What the programs refuse: each row is what somebody types, the files beside it, and what is said.

The rows run in one process that cannot import TensorFlow, because none of them should have to wait
for it. None of them changes a file.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from albert_tf.checkpoints import run_record
from albert_tf.data.tf_example import encode_examples
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.record_frames import frame_records
from tests.conftest import TINY_SHAPE, TOY_TEXT

# A module that is None cannot be imported.
CODE = """
import json, os, sys
from importlib.machinery import ModuleSpec
class Installed:
    "Finds modules, which cannot be imported."
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in ("tensorflow", "tf_keras") else None
    def create_module(self, spec):
        raise ImportError(spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Installed())
from albert_tf.cli import programs
def read_all():
    paths = [os.path.join(place, name) for place, _, names in os.walk(".") for name in names]
    return {path: open(path, "rb").read() for path in paths}
messages = []
for name, flags, files in json.loads(sys.stdin.read()):
    for path, content in files.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        open(path, "wb").write(content.encode("latin-1"))
    before = read_all()
    sys.argv = [name or "albert", *flags]
    try:
        programs.main(name)
        messages.append("not refused")
    except SystemExit as error:
        messages.append(str(error).replace("\\n", " "))
    except BaseException as error:
        messages.append(repr(error))
    if read_all() != before:
        messages[-1] = "files were changed"
    for path in files:
        os.remove(path)
sys.__stdout__.write(json.dumps(messages))
"""
MODEL = "--albert_config_file=config.json --spm_model_file=toy.model --output_dir=out "
TUNE = MODEL + "--do_train --max_seq_length=40 "
ASK = MODEL + "--max_seq_length=40 --max_query_length=7 "
SQUAD = TUNE + "--train_file=no.json "
CLASSIFY = TUNE + "--task_name=mrpc --data_dir=. "
NO_PHASE = "--nodo_train --nodo_eval --nodo_predict"
CREATE = "--input_file=text.txt --output_file=x --spm_model_file=toy.model "
FULL = CREATE + "--instance_format=full_sentences "
VOCABULARY = "--input_file=text.txt --output_prefix=v "
TRAIN = "--albert_config_file=config.json --output_dir=out --input_file=a.tfrecord --do_train "
TRAIN += "--train_batch_size=1 "
PREDICT = "--model_dir=race "
TEXT = "--model_dir=classification --text=a "
PLOT = "--output_dir=. "


def metadata(record_file, size=98, **settings):
    """The metadata beside a record file of one byte."""
    vocabulary = {"size": size, "checksum": "a" * 64, "file": "x.model", "do_lower_case": False}
    entry = {"name": record_file, "instances": 1, "bytes": 1}
    found = {"files": [entry], "settings": settings, "vocabulary": vocabulary, "mask_id": 4}
    return json.dumps(found)


def parquet_of(**columns):
    """The content of a file of Parquet."""
    stream = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue().decode("latin-1")


# Records without the features of pre-training, and without any.
OTHER_RECORD, NO_EXAMPLE = (
    frame_records([data])[0].decode("latin-1")
    for data in (encode_examples({"input_ids": np.ones((1, 3), int)})[0], b"not a message")
)
PROSE = "One day\n\nAlone\n\nagain\n"
ASKED = {"context": "The boat waits.", "qas": [{"id": "q1", "question": "What waits?"}]}
# Program → what is typed, what is said and, if needed, files of that row.
REFUSALS: dict[str, list[tuple]] = {
    "plot-results": [  # first, because reading tables raises the limit of csv's fields
        (PLOT, r"metrics\.jsonl, line 1: ", {"metrics.jsonl": "[1]\n"}),
        (PLOT, r"_predictions\.tsv: empty, expected a header", {"dev_predictions.tsv": ""}),
        ("--output_dir=clasification", "--output_dir: .*: no such .* mean 'classification'[?]$"),
        *(
            (PLOT, rf"sweep_results\.tsv: {said}", {"sweep_results.tsv": content})
            for content, said in (
                ("seed\tstep\n1\t2\n", "a row has no 'folder'"),
                ("seed\tfolder\n1\n", "a row has no 'folder'"),
                ("a" * 200_000, "not a table: field larger"),
            )
        ),
        *(
            (
                "--output_dir=own",
                r"sweep_results\.tsv names '\.\.': expected a file in",
                {"own/sweep_results.tsv": f"folder\tseed\n{folder}\t1\n"},
            )
            for folder in ("..", "/x/..", "x\\..")
        ),
        ("--output_dir=tags", r"nothing to plot; expected two lines"),
    ],
    "": [("clasifier", "'clasifier' is not .*'classifier'")],
    "train-vocabulary": [
        (VOCABULARY + "--input_file=empty.txt", r"--input_file: no text in .*empty\.txt"),
        (VOCABULARY + "--input_file=a", "no lines left to train on", {"a": "\xcc\x81\n\xcc\x80\n"}),
        (VOCABULARY + "--input_file=a", "a, line 3: not UTF-8", {"a": "fine\n\n\xd6\xd0\n"}),
        (VOCABULARY + "--output_prefix=no.json/v", "--output_prefix: cannot write to"),
        (VOCABULARY + "--output_prefix=new/", "--output_prefix=.* must end with a file name"),
        (VOCABULARY + "--output_prefix=text --type=wordpiece", r"text\.txt is an input, --input"),
        (
            VOCABULARY + "--input_sentence_size=100",
            "input_sentence_size=100: 100 is not integer >= 101",
        ),
        (VOCABULARY + "--output_prefix=toy", r"toy\.model already exists, .* --overwrite"),
    ],
    "create-pretraining-data": [
        (CREATE + "--spm_model_file=tags/train.txt", "not a SentencePiece"),
        (CREATE + "--max_seq_length=4", "max_seq_length=4: expected 5 or more, for 3 special"),
        (FULL + "--max_seq_length=3", "max_seq_length=3: expected 4 or more, for 2 special"),
        (CREATE + "--masked_lm_prob=1.0", r"masked_lm_prob=1\.0: expected less than 1"),
        (FULL + "--sentence_objective=sop", "'sop' needs pairs, which .*='full_sentences'"),
        (CREATE + "--input_file=nowhere.txt", "--input_file: .*nowhere.txt' matches no file"),
        (CREATE + "--input_file=txet.txt", "file: 'txet.txt' matches no .* mean 'text.txt'[?]$"),
        (CREATE + "--input_file=tagz/*.txt", r"'tagz/\*\.txt' matches .* mean 'tags/\*\.txt'[?]$"),
        (CREATE + "--spm_model_file=toi.model", "--spm_model_file: toi.* mean 'toy.model'[?]$"),
        (CREATE + "--input_file=tags", "tags: expected a file, but this is a directory"),
        (
            CREATE + "--input_file=rows",
            "rows is a .* input format is sentences.*_format=jsonl",
            {"rows": parquet_of(text=["a b."])},
        ),
        (
            CREATE + "--input_file=rows --input_format=jsonl",
            r"rows: no column contains text; its columns: n \(int64\)",
            {"rows": parquet_of(n=[1], m=[2])},
        ),
        *(
            (CREATE + f"--input_file={name}", f"{name} is {said}", {name: content})
            for name, content, said in (
                ("a.jsonl", "{}", "JSON lines, but .* sentences. Pass --input_format=jsonl, and"),
                ("wiki_00", '{"id": 1, "text": "a"}', "JSON lines, but the input format is sent"),
                ("a.csv.gz", "text\n", "a table, but .* Write its texts as JSON lines or Parquet"),
            )
        ),
        (
            CREATE + "--input_file=b",
            "b: TFRecords, which cannot be read. .*albert inspect-records --input_file=b$",
            {"b": OTHER_RECORD},
        ),
        (CREATE + "--spm_model_file=", r"--spm_model_file \(English\) or --vocab_file"),
        (CREATE + "--spm_model_file=absent", "absent: no such file"),
        (CREATE + "--spm_model_file= --vocab_file=absent", "absent: no such file"),
        (CREATE + "--input_file=empty.txt", "empty.txt: all input files are empty"),
        (CREATE + "--output_file=text.txt", "--output_file: .*text.txt is an input, --input_file"),
        (CREATE + "--output_file=empty.txt/out/a", "--output_file: cannot write to .*empty.txt/o"),
        (CREATE + "--work_dir=gs://b/x", "--work_dir=gs://b/x: expected a local directory"),
        (CREATE + "--work_dir=.", "--work_dir=.: contains other files"),
        (CREATE + "--output_file=,", "expected at least one"),
        (CREATE + "--output_file=a,b,a", "same file is named twice"),
        (CREATE + "--output_file=a@0", "expected 1 or more after the @"),
    ],
    "inspect-records": [
        ("--input_file=empty.txt", r"no records in .*empty"),
        ("--input_file=a.tfrecrd", "'a.tfrecrd' matches no file. Did you mean 'a.tfrecord'[?]$"),
        ("--input_file=a.tfrecord --vocab_file=word.txt", "--vocab_file: .* mean 'words.txt'[?]$"),
        ("--input_file=b", "b, record 1 .*: missing input_mask", {"b": OTHER_RECORD}),
        ("--input_file=b", "b, record 1.*not a tf.train.Example", {"b": NO_EXAMPLE}),
        ("--input_file=text.txt", "text.txt: this is text, expected TFRecords. Create them: "),
    ],
    "run-classifier": [
        ("--output_dir=o --train_batch_size=0", "train_batch_size"),
        ("--output_dir=o --learning_rate=1,-2", "learning_rate"),
        ("--output_dir=o --learning_rate=fast", "learning_rate"),
        ("--output_dir=o --sed=1", "Unknown command line flag 'sed'. Did you mean: seed"),
        ("--seed=1", "--task_name is required: Name of the task"),
        ("--gpus=2", "--gpus is not a flag .* Did you mean --num_devices[?] "),
        ("tags", "'tags' is not a flag. Did you mean --data_dir=tags[?] "),
        (
            "--task_name=tsv --data_dir=. --output_dir=x --do_train",
            "--albert_config_file is required: .* or --init_checkpoint, a model to start with$",
        ),
        *(
            (f"--{flag}", f"--{flag.partition('=')[0]} is not a flag .* Did you mean --{meant}[?] ")
            for flag, meant in (
                ("epochs=3", "num_train_epochs"),
                ("batch_size=8", "train_batch_size"),
                ("model_name_or_path=m", "init_checkpoint"),
                ("model-name-or-path=m", "init_checkpoint"),
                ("lr=2e-5", "learning_rate"),
                ("max_steps=3", "train_step"),
            )
        ),
        (
            CLASSIFY + "--do_train true",
            "'true' is not a flag: write --do_train=true, or --do_train",
        ),
        (
            CLASSIFY + "--do_eval False --do_train",
            "write --do_eval=false, or --do_eval or --nodo_e",
        ),
        (CLASSIFY + "--do_train 'yes please'", "'yes please' is not a flag: flags start with -- "),
        (CLASSIFY + "--seed=1 true", "'true' is not a flag: flags start with -- "),
        (CLASSIFY + "true", "'true' is not a flag"),
        (CLASSIFY + "--spm_model_file=tags/train.txt", "not a SentencePiece model"),
        (CLASSIFY, r"line 2: expected 4 or more .*; there is no other row. Is --data_dir right\?$"),
        (
            TUNE + "--task_name=tsv --train_file=a.tsv",
            r"line 2: expected 2 or .* other 2 rows, and none is good. Is --train_file right\?$",
            {"a.tsv": "text\tlabel\na\nb\nc\n"},
        ),
        (CLASSIFY + "--max_seq_length=41", "=41 is larger .*embeddings=40"),
        (CLASSIFY + "--output_dir=other", "other contains another model .*num"),
        ("--task_name=mrcp --data_dir=. --output_dir=x", "mean 'mrpc'"),
        (CLASSIFY + NO_PHASE, "nothing to do"),
        (CLASSIFY + "--data_dir=tasg", "--data_dir: tasg: no such directory. .* mean 'tags'[?]$"),
        (CLASSIFY + "--init_checkpoint=rase", "--init_checkpoint: rase: .* mean 'race'[?]$"),
        (CLASSIFY + "--albert_config_file=albert_bsae", "a config of .* mean 'albert_base'[?]$"),
        (CLASSIFY + "--albert_config_file=confg.json", "_file: .* mean 'config.json'[?]$"),
        ("--flagfile=glue_mrcp", "nor a recipe of albert_tf. Did you mean 'glue_mrpc'[?] "),
        (CLASSIFY + "--task_name=ax", "task ax has no train data"),
        (CLASSIFY + "--albert_config_file=", "--albert_config_file"),
        (CLASSIFY + "--export_dir=/dev/null/x", "--export_dir: cannot write to"),
        *(
            (
                CLASSIFY + "--task_name=tsv --data_dir=own",
                rf"{name}, line 1: several columns are called 'text': rename",
                {f"own/{name}": content},
            )
            for name, content in (
                ("train.tsv", "text\tlabel\tText\na\tx\tb\n"),
                ("train.jsonl", '{"text": "a", "Text": "b", "label": "x"}'),
            )
        ),
        (CLASSIFY + "--init_checkpoint=a --albert_hub_module_handle=b", "are mutually exclusive"),
        (CLASSIFY + "--albert_hub_module_handle=https://x/1", "modules are not downloaded"),
        (CLASSIFY + "--learning_rate=", "--learning_rate=: expected one or more"),
        (CLASSIFY + "--learning_rate=1e-5,2e-5,1e-5", "--learning_rate=1e-05,2e-05,1e-05: exp"),
        (CLASSIFY + "--num_runs=2 --nodo_eval", "2 runs are compared .*: set --do_eval"),
        (  # `$FOLDER/model.ckpt-best` of an unset variable, without a config
            "--task_name=mrpc --data_dir=. --output_dir=x --init_checkpoint=/model.ckpt-x",
            "^run-classifier: --init_checkpoint: /model.ckpt-x: no such checkpoint.* shell varia",
        ),
    ],
    "run-squad": [
        ("--fp16", "--fp16 is not a flag .* Did you mean --precision[?] "),
        (SQUAD + "--max_query_length=7", "no.json: 'data' is missing"),
        (SQUAD, "--max_query_length=64 .* expected 68 or more"),
        (ASK + NO_PHASE, "nothing to do"),
        (TUNE + "--max_query_length=7", "--do_train requires --train_file, a file of questions"),
        (ASK + "--do_predict", "--do_predict requires --predict_file, a file of questions"),
        (
            ASK + "--do_eval --predict_file=asked.json",
            r"asked\.json has no answers to evaluate on",
            {"asked.json": json.dumps({"data": [{"paragraphs": [ASKED]}]})},
        ),
    ],
    "run-race": [
        (TUNE + "--data_dir=.", "no key 'questions' among 'article'"),
        (TUNE + "--data_dir=. " + NO_PHASE, "nothing to do"),
        (TUNE + "--data_dir=. --middle_only --high_only", "--middle_only and --high_only"),
    ],
    "run-token-classification": [
        (TUNE + "--data_dir=tags", "train.txt, line 1: no label"),
        (TUNE + "--train_file=a.txt", "line 3: no label.*; likewise line 5$", {"a.txt": PROSE}),
        (TUNE + "--data_dir=tags " + NO_PHASE, "nothing to do"),
    ],
    "run-pretraining": [
        ("--max_steps=3", "--max_steps is not a flag .* Did you mean --num_train_steps[?] "),
        (TRAIN + "--max_seq_length=41", "=41 is larger .*embeddings=40"),
        (TRAIN + "--max_seq_length=40", "vocabulary of 98 entries"),
        *(
            (
                TRAIN.replace("a.tfrecord", "b.tfrecord") + f"--max_seq_length=40 {flags}",
                said,
                {"b.tfrecord": "\xff", "b.records.json": metadata("b.tfrecord", **settings)},
            )
            for flags, settings, said in (
                (
                    *("--sentence_objective=sop", {"size": 97, "sentence_objective": "nsp"}),
                    r"b\.tfrecord was created for sentence_objective=nsp, but .*=sop",
                ),
                (
                    *("", {"size": 97, "sentence_objective": "sop3"}),
                    r"b\.records\.json: .*='sop3', expected one of sop, nsp",
                ),
                ("", {"size": 4}, r"b\.records\.json: mask_id is 4, expected 0 to 3"),
            )
        ),
        (
            TRAIN.replace("a.tfrecord", "b.tfrecord")
            + "--max_seq_length=40 --do_eval --eval_input_file=c.tfrecord",
            r"c\.tfrecord was created for sentence_objective=sop, but .*=nsp",
            {
                **{"b.tfrecord": "\xff", "c.tfrecord": "\xff"},
                "b.records.json": metadata("b.tfrecord", 97, sentence_objective="nsp"),
                "c.records.json": metadata("c.tfrecord", 97, sentence_objective="sop"),
            },
        ),
        (
            TRAIN.replace("a.tfrecord", "text.txt"),
            "text.txt: this is text, expected TFRecords. Create them: albert create-pretraining",
        ),
        (TRAIN + "--output_dir=other", "other contains another model .*num"),
        (TRAIN + "--nodo_train", "nothing to do"),
        (TRAIN + "--input_file='none*'", r"'none\*' matches no file"),
        (TRAIN + "--init_checkpoint=none", "none: no such checkpoint"),
        (TRAIN + "--dynamic_masking --masked_lm_prob=0", "masks nothing"),
        (TRAIN + "--dynamic_masking --masked_lm_prob=1", "expected less than 1"),
    ],
    "download": [
        ("albert-base-v3", "not a released model. Did you mean 'albert_base_v2'"),
        ("textattack/albert-base-v2-imdb", r"released model\. If .* --hub\. Expected"),
        ("gpt", "Expected one of albert_base_v1, .*google/albert_base/1"),
        ("albert_base_v2 --cache_dir=gs://bucket/cache", "local folders only"),
        ("--hub", "organization/name"),
    ],
    "run-predict": [
        ("--model_name_or_path=m", "_path is not a flag .* Did you mean --model_dir[?] "),
        (PREDICT + "--device=gpu", "--device is not a flag .* a GPU if TensorFlow finds one .nvid"),
        ("race --text=a", "'race' is not a flag. Did you mean --model_dir=race[?] "),
        (PREDICT + "text.txt", "'text.txt' is not a flag. Did you mean --input_file=text.txt[?] "),
        (PREDICT + "race", "'race' is not a flag: flags start with --"),
        ("--model_dir=race/run.json --text=a", "not a weight file. Did you mean the folder 'race'"),
        ("--model_dir=words.txt --text=a", "words.txt: not a weight file. Expected: a Tens"),
        (
            "--model_dir=https://huggingface.co/who/what --text=a",
            "/what: a page of the Hugging Face Hub. .* folder: albert download who/what --hub$",
        ),
        (
            "--model_dir=https://huggingface.co/albert/albert-base-v2 --text=a",
            "Download it: albert download albert_base_v2$",
        ),
        ("--output=x", "--output is not a flag .* Did you mean --output_file[?] "),
        ("--model_dir=none --text=x", "none: no such checkpoint"),
        ("--model_dir=Clasification --text=x", "checkpoint. Did you mean 'classification'[?]$"),
        (
            "--model_dir=./clasification/model.ckpt-best --text=x",
            "no such checkpoint. Did you mean 'classification/model.ckpt-best'[?]$",
        ),
        (TEXT + "--task_module=mytask.py", "_module: .* mean 'my_task.py'[?]$", {"my_task.py": ""}),
        ("--model_dir=tags --text=x", "tags: this folder contains no checkpoint"),
        (PREDICT, "nothing to predict: pass --text"),
        (PREDICT + "--text=a --task=fill_mask --similarity", "are for embeddings only"),
        (PREDICT + "--text=a --embeddings_file=x.txt", r"expected a name in \.npy"),
        (PREDICT + "--text=x --embeddings_file=no.json/x.npy", "_file: cannot"),
        (PREDICT + "--text=a --task=poetry", "task='poetry': expected one of"),
        (PREDICT + "--input_file=a.txt --text=a", "either a file or a single input"),
        (PREDICT + "--input_file=a.txt --question=a", "either a file or a single input"),
        (PREDICT + "--question=a --text_b=a", "--text is given 0 times and --text_b 1 times: pass"),
        (PREDICT + "--text=a --text=b --similarity", "pass the second one as --text_b"),
        (PREDICT + "--text=a --text=b --similarity --input_file=a.txt", "takes one --text"),
        (PREDICT + "--text=x --max_seq_length=41", "=41 is larger .*dings=40"),
        (PREDICT + "--text=x --vocab_file=words.txt", "with another vocabulary"),
        (PREDICT + "--text=a --output_file=a.txt", r"a\.txt: expected a name in \.csv or \.jsonl"),
        (PREDICT + "--text=a --text_b=b --similarity --output_file=a.csv", "--embeddings_f"),
        (PREDICT + "--web --output_file=a.csv", "_file is for the answers of a task: --web shows"),
        (
            PREDICT + "--input_file=text.txt --task=embeddings --output_file=a.csv",
            "embeddings are written to --embeddings_file",
        ),
        (
            PREDICT + "--input_file=a.csv --output_file=./tags/../a.csv",
            r"--output_file=.*a\.csv is the --input_file",
            {"a.csv": "text\na\n"},
        ),
        (PREDICT + "--text=a --output_file=no.json/new.csv", "--output_file: cannot write to"),
        *(
            (
                f"--model_dir={task} {flags}",
                f"{', '.join(re.findall('--[^ =]+(?==)', flags.replace('--task=', '')))}: .*{said}",
            )
            for task, flags, said in (
                ("classification", "--question=a --context=b", "ion takes --text, --text_b"),
                ("regression", "--text=a --context=b", "regression takes --text, --text_b"),
                ("token_classification", "--text=a --text_b=b", "classification takes --text$"),
                ("token_classification", "--question=a --context=b", "ication takes --text$"),
                ("spans", "--text=a --text_b=b", "spans takes --question, --context"),
                ("spans", "--question=a --context=b --options=c,d", "takes --question, --context"),
                ("spans", "--question=a", "spans takes --question, --context"),
                ("spans", "--context=a", "spans takes --question, --context"),
                ("race", "--text=a", "takes --context, --question, --options"),
                ("race", "--question=a", "no options .*takes --context, --question, --options"),
                ("race", "--task=fill_mask --text=[MASK] --text_b=a", "fill_mask takes --text$"),
                ("race", "--task=embeddings --question=a --context=b", "takes --text, --text_b"),
                (
                    "race",
                    "--similarity --text=a --text_b=b --context=c",
                    "embeddings takes --text,",
                ),
            )
        ),
        (PREDICT + "--input_file=none.txt", "--input_file.*none.txt"),
        (PREDICT + "--input_file=no.json --task=fill_mask", "1: expected 'text_a' or"),
        (PREDICT + "--input_file=train.tsv", "line 1: .Quality., .id. look like names"),
        (PREDICT + "--input_file=a.tfrecord --task=embeddings", "line 1: not UTF"),
        (PREDICT + "--input_file=bad.jsonl", "line 1: expected one JSON object"),
        *(
            (f"--model_dir={task} --input_file={name}", said, {name: content})
            for task, name, content, said in (
                (
                    *("classification", "a.tsv", "utterance\tintent\nhello there\tx\nbye now\ty\n"),
                    "line 1: .* look like names of columns.*'text', 'text_b'",
                ),
                (
                    *("classification", "a.tsv", "utterance\nhello there\nhi, bye\n"),
                    "line 1: .* look like names of columns.*'text', 'text_b'",
                ),
                (
                    *("spans", "a.tsv", "frage\tabsatz\nWer singt?\tAnna singt.\n"),
                    "line 1: .* look like names of columns.*'question', 'context'",
                ),
                ("spans", "a.jsonl", '{"question": "q", "context": " "}', "the context is empty"),
                ("spans", "a.txt", "q\tc\td\n", "2 or fewer columns, got 3"),
                ("token_classification", "a.jsonl", '{"tokens": "a"}', "'tokens': expected a list"),
                (
                    "token_classification",
                    "a.jsonl",
                    '{"tokens": [5]}',
                    "a token is 5, expected tex",
                ),
                ("race", "a.jsonl", '{"passage": "p", "options": ["a"]}', "a list of two or more"),
                ("race", "a.txt", "p\tq\n", "a JSON object"),
                ("race --task=fill_mask", "a.txt", "a\tb\n", "1 or fewer columns, got 2"),
                ("classification", "a.txt", "a\nb\xff\n", r"a\.txt, line 2: not UTF-8 \(byte 0xff"),
                ("classification", "a.txt", "\xff\xfea\0", "not UTF-8 .* -f UTF-16`$"),
                (
                    *("classification", "a.txt", "a\nb\tc\td\n"),
                    "line 2: expected 2 or fewer columns, got 3: 'b', 'c', 'd'",
                ),
                (
                    *("classification", "a.csv", "Frage;Wert\nwer;1\nwas;2\n"),
                    "got semicolons: 'Frage;Wert'",
                ),
                ("classification", "a.txt", "", "contains no input"),
                (
                    *("classification", "a.csv", "label,text,text\nx,a,b\n"),
                    "line 1: several columns are called 'text': rename",
                ),
                (
                    *("classification", "a.jsonl", '{"text": "a", "Text": "b"}'),
                    "line 1: several columns are called 'text': rename",
                ),
                (
                    *("classification", "a.tsv", "text\ttext_b\na\n"),
                    "line 2: expected 2 columns, as in the header, got 1",
                ),
                ("classification", "a.csv", 'text\n"a\n', "line 2: not comma-separated values"),
                (
                    *("classification", "a.jsonl", '{"text": "a"}\n{"text"\n'),
                    "line 2: expected one JSON object",
                ),
                (
                    *("classification", "a.jsonl", "{}\n[1]\n"),
                    "line 2: expected one JSON object per line",
                ),
                ("classification", "a.jsonl", "[1]\n", "item 1: expected a JSON object, got 1"),
                (
                    *("classification", "a.jsonl", '{"title": "a"}\n'),
                    "line 1: expected 'text_a' or .*, found 'title'",
                ),
                (
                    "classification",
                    "a.jsonl",
                    '{"text": 5}\n',
                    "line 1: 'text' is 5, expected text",
                ),
                (
                    *("classification", "a.jsonl", '"\\ud800"\n'),
                    "line 1: the text contains a lone surrogate",
                ),
                (
                    *("classification", "a.jsonl", '{"text": "a", "id": ["\\ud800"]}\n'),
                    "line 1: column 'id' contains a lone surr",
                ),
            )
        ),
    ],
    "convert": [
        ("--input=spans --output=tags", r"--output=.*tags already exists\. Name a new folder"),
        ("--input=spans", "--output is required: name a new folder, or pass --inspect"),
        ("--input=span --output=new", "span: no such checkpoint. Did you mean 'spans'[?]$"),
        ("--input=spans --output=new --vocab_file=absent.txt", "file: absent.txt: no such file"),
        (
            "--input=spans --output=new --output_format=onnx --quantization=float16",
            "--quantization=float16 requires --output_format=tflite$",
        ),
        (
            "--input=spans --output=new --output_format=openvino --quantization=int8",
            "--quantization=int8 requires --output_format=tflite or onnx$",
        ),
    ],
    "describe": [
        ("albert_bse", "albert_bse: neither a file nor a config .* Did you mean 'albert_base'[?]$"),
        ("qqq", "qqq: neither a file nor a config of albert_tf, which has albert_base, "),
        ("./clasification", "no such checkpoint. Did you mean 'classification'[?]$"),
        ("tags", "contains no checkpoint"),
        ("bad.json", r"bad\.json: not JSON: Expecting property name", {"bad.json": "{"}),
        ("bad.json", r"bad\.json: vocab_size=0", {"bad.json": '{"vocab_size": 0}'}),
        ("albert_base --max_seq_length=513", "513"),
    ],
}
ROWS = [
    (program, typed, said, files[0] if files else {})
    for program, rows in REFUSALS.items()
    for typed, said, *files in rows
]


def write_model(folder, name, task, vocabulary):
    """Writes the folder of a trained model, whose weights are never read."""
    model = folder / name
    model.mkdir()
    (model / "config.json").symlink_to(folder / "config.json")
    (model / "toy.model").symlink_to(vocabulary)
    for suffix in (".index", ".data-00000-of-00001"):
        (model / f"model.ckpt-best{suffix}").touch()
    tokenizer = FullTokenizer(spm_model_file=str(vocabulary))
    record = run_record.of_tokenizer(tokenizer, str(vocabulary))
    labels = ["a", "b"] if task.endswith("classification") else []
    record = dataclasses.replace(record, task={"name": task, "labels": labels})
    (model / "run.json").write_text(record.to_json())


@pytest.fixture(name="messages", scope="module")
def messages_of_all_programs(tmp_path_factory, toy_spm_model):
    """Returns the message of each row, from a process that cannot import TensorFlow."""
    folder = tmp_path_factory.mktemp("refusals")
    article = folder / "RACE" / "train" / "high" / "1.txt"
    article.parent.mkdir(parents=True)
    article.write_text('{"article": "x"}')
    config = TINY_SHAPE | {"max_position_embeddings": 40}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "no.json").write_text("{}")
    (folder / "other").mkdir()
    other = json.dumps(config | {"num_hidden_layers": 7})
    (folder / "other" / "albert_config.json").write_text(other)
    (folder / "tags").mkdir()
    (folder / "tags" / "train.txt").write_text("word\n")
    (folder / "text.txt").write_text(TOY_TEXT)
    (folder / "empty.txt").touch()
    (folder / "train.tsv").write_text("Quality\tid\n1\t2\n")
    (folder / "toy.model").symlink_to(toy_spm_model)
    (folder / "a.tfrecord").write_bytes(b"\xff")
    (folder / "bad.jsonl").write_text("{")
    (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    write_model(folder, "race", "multiple_choice", toy_spm_model)
    for task in ("classification", "regression", "token_classification", "spans"):
        write_model(folder, task, task, toy_spm_model)
    (folder / "a.records.json").write_text(metadata("a.tfrecord"))
    rows = [[program, shlex.split(typed), files] for program, typed, _, files in ROWS]
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=folder,
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("number", "said"),
    [
        pytest.param(number, said, id=f"{program or 'albert'} {typed}")
        for number, (program, typed, said, _) in enumerate(ROWS)
    ],
)
def test_programs_refuse_without_tensorflow_and_change_nothing(messages, number, said):
    assert re.search(said, messages[number]), messages[number]
