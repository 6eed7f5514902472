r"""Predicts labels, scores, tags, answers, embeddings, similarities and masked words from text.

    albert predict --model_dir=lcqmc_model --text=你多大了 --text_b=你几岁
    albert predict --model_dir=squad_model --question="Who was Ekeus?" \
        --context="Official Ekeus heads for Baghdad."
    albert predict --model_dir=albert_tiny_zh --task=fill_mask --text="北京是[MASK]国的首都"
    albert predict --model_dir=albert_base_v2 --input_file=new.txt --embeddings_file=new.npy
    albert predict --model_dir=albert_base_v2 --similarity --text="A boat." \
        --text_b="A ship."
    head texts.txt | albert predict --model_dir=sst_model --input_file=-
    albert predict --model_dir=sst_model --web

--model_dir is the --output_dir of a fine-tuning or pre-training program, a released archive, or any
folder that `from_pretrained` reads; the task, labels, config and vocabulary are found there. Prints
a JSON object for each input to standard output, and logs to standard error. --text, or --text and
--text_b, may be given several times. --input_file may be text, .tsv, .csv, .jsonl, .json, .parquet
or .arrow, of any size. In the results, "line" is the number of the line in it, or "row" that of the
row, from 1; columns id, idx and guid are copied. --output_file=answers.csv has all columns of the
inputs beside the answers. --web serves a demo page at http://127.0.0.1:8000.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from albert_tf import files
from albert_tf.checkpoints.tasks import EMBEDDINGS, FILL_MASK
from albert_tf.checkpoints.weight_names import MASKED_LM_BIAS
from albert_tf.finetuning import registry
from albert_tf.finetuning.columns import parse_pair
from albert_tf.inference import embedding_program, program
from albert_tf.inference.embeddings import EmbeddingTask
from albert_tf.inference.fill_mask import FillMask
from albert_tf.inference.inputs import parse_two, read_inputs
from albert_tf.inference.model_task import find_predicted_task, open_model
from albert_tf.inference.settings import Settings

if TYPE_CHECKING:  # what needs TensorFlow
    from albert_tf.model.modeling import AlbertEncoder, AlbertForPretraining

__all__ = ["Settings", "run"]


def _pretraining_model() -> type[AlbertForPretraining]:
    from albert_tf.model.modeling import AlbertForPretraining

    return AlbertForPretraining


def _encoder() -> type[AlbertEncoder]:
    from albert_tf.model.modeling import AlbertEncoder

    return AlbertEncoder


registry.add(
    registry.TaskSpec(FILL_MASK, FillMask, _pretraining_model, MASKED_LM_BIAS),
)
registry.add(registry.TaskSpec(EMBEDDINGS, EmbeddingTask, _encoder, head_variable=""))


def run(settings: Settings) -> Iterator[files.JsonObject]:
    """Yields a JSON object for each input, in input order, or serves the web page until Ctrl-C.

    >>> settings = Settings(model_dir="lcqmc_model", text="你多大了", text_b="你几岁")
    >>> next(run(settings))  # doctest: +SKIP
    {'label': '1', 'probabilities': {'0': 0.03, '1': 0.97}}

    Args:
        settings: the settings, which correspond to the flags of that program.

    Raises:
        ValueError, OSError: settings, model or input are invalid or inconsistent; the message says
            which. With `web`, the extra `web` is not installed, or the port is already in use.
    """
    settings.check_paths()
    if settings.task_module:
        registry.import_tasks(settings.task_module)
    source = open_model(settings)
    if settings.web:
        from albert_tf.inference import web  # needs Gradio

        web.serve(settings, source)
        return iter(())
    task = registry.get(find_predicted_task(source, settings.wanted_task))
    settings.check_answers(task.name)
    trained_with = source.run.record.settings
    if settings.needs_embeddings:
        compares = settings.similarity and not settings.is_search
        parse = parse_two if compares else parse_pair
        pairs = read_inputs(settings, parse, task, trained_with)
        return embedding_program.run(settings, source, pairs)
    examples = read_inputs(settings, task.task.parse_row, task, trained_with)
    answer = program.write if settings.output_file else program.run
    return answer(settings, source, task.name, examples)
