"""What docs/serving.md says to send to TensorFlow Serving, sent through the signatures."""

from __future__ import annotations

import json
import re

import pytest
import tensorflow as tf

import albert_tf
from tests.checkpoints.serving_rest import respond
from tests.conftest import ROOT
from tests.inference.conftest import write_folder

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
# Name of a task on the page → its JSON objects: requests, each with its response behind it.
REQUESTS = {
    name: [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", text, re.M | re.S)]
    for name, text in re.findall(r"^#### Requests for (.+?)\n(.*?)(?=^###|\Z)", PAGE, re.M | re.S)
}
HEADS = {"classification": {"output_weights": (2, 12), "output_bias": (2,)}, "embeddings": None}


def assert_same_form(found, shown, place):
    """Names, sizes and types of a response are as the page shows; numbers may differ."""
    if isinstance(shown, dict):
        assert shown.keys() == found.keys(), place
        for key, value in shown.items():
            assert_same_form(found[key], value, f"{place}.{key}")
    elif shown == []:  # stands for the numbers of an embedding
        assert {type(number) for number in found} == {float}, place
    elif isinstance(shown, list):
        assert len(found) == len(shown), place
        for number, value in enumerate(shown):
            assert_same_form(found[number], value, f"{place}[{number}]")
    else:
        assert type(found) is type(shown), place


@pytest.mark.slow
@pytest.mark.parametrize("task", HEADS)
def test_requests_of_the_page_get_responses_of_the_form_that_it_shows(
    task, tmp_path, config_file, toy_spm_model
):
    folder = write_folder(tmp_path, config_file, toy_spm_model, HEADS[task])
    export = albert_tf.export_saved_model(str(folder), str(tmp_path / "export"))
    signatures = tf.saved_model.load(export).signatures
    by_rows, shown_rows, by_columns, shown_columns = REQUESTS[task]
    rows = respond(signatures, json.dumps(by_rows))
    columns = respond(signatures, json.dumps(by_columns))
    assert_same_form(rows, shown_rows, "rows")
    assert_same_form(columns, shown_columns, "columns")
    for name, (first, *_) in columns["outputs"].items():
        expected = first if isinstance(first, str) else pytest.approx(first, abs=1e-5)
        assert rows["predictions"][0][name] == expected
