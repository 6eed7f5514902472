r"""Predicts labels, scores, tags, answers, embeddings, similarities and masked words from text.

    albert predict --model_dir=lcqmc_model --text=你多大了 --text_b=你几岁
    albert predict --model_dir=squad_model --question="Who was Ekeus?" \
        --context="Official Ekeus heads for Baghdad."
    albert predict --model_dir=albert_tiny_zh --task=fill_mask --text="北京是[MASK]国的首都"
    albert predict --model_dir=albert_base --input_file=texts.txt --embeddings_file=texts.npy
    albert predict --model_dir=albert_base --similarity --text="A boat." --text_b="A ship."
    head texts.txt | albert predict --model_dir=sst_model --input_file=-
    albert predict --model_dir=sst_model --web

--model_dir is the --output_dir of a fine-tuning or pre-training program, a released archive, or any
folder that `from_pretrained` reads; the task, labels, config and vocabulary are found there. Prints
a JSON object for each input to standard output, and logs to standard error. --text, or --text and
--text_b, may be given several times. In the results, "line" is the line number in --input_file,
from 1. --web serves a demo page at http://127.0.0.1:8000.
"""

import io
import json
import sys
from collections.abc import Iterator

from albert_tf import inference
from albert_tf.inference import Settings


def run(settings: Settings) -> Iterator[str]:
    """Runs the program, and yields each result as JSON as soon as it is available."""
    if settings.web:
        inference.serve(settings)
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    for result in inference.run(settings):
        yield json.dumps(result, ensure_ascii=False)
