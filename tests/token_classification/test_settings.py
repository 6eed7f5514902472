"""Settings of the token classification program."""

import pytest

from albert_tf import token_classification
from albert_tf.settings import describe


def test_the_settings_are_public_and_require_data_and_a_folder():
    settings = token_classification.Settings(data_dir="msra", output_dir="out")
    assert (settings.token_column, settings.label_column) == (0, -1)
    assert not settings.asks_for_something
    required = {f.name for f in describe(token_classification.Settings) if f.is_required}
    assert required == {"data_dir", "output_dir"}


def test_an_unknown_scheme_is_rejected():
    with pytest.raises(ValueError, match="tag_scheme='bio': expected one of 'auto', 'iob1'"):
        token_classification.Settings(data_dir="msra", output_dir="out", tag_scheme="bio")
