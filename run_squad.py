r"""Fine-tunes ALBERT on SQuAD 1.1, SQuAD 2.0, CMRC 2018 or DRCD, evaluates it, answers questions.

    python run_squad.py --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --train_file=train-v1.1.json --predict_file=dev-v1.1.json --output_dir=squad_model \
        --do_train --do_predict

The flags are those of run_squad_v1.py and run_squad_v2.py. Writes checkpoints, model.ckpt-best,
eval_results.txt, predictions.json, nbest_predictions.json and, for SQuAD 2.0, null_odds.json to
--output_dir. A --predict_file without answers is answered by the best checkpoint; --question and
--context ask a single question. The same command again goes on where it stopped.
"""

import dataclasses

from absl import flags

from albert_tf import files
from albert_tf.cli import flag_groups, program
from albert_tf.squad.decoding import DecodingSettings
from albert_tf.squad.reading import SquadData, one_question, read_squad
from albert_tf.squad.windows import WindowSettings
from tools import plot_results

FLAGS = flags.FLAGS

flag_groups.define_model_flags(needs_config=False)
flag_groups.define_device_flags()
flag_groups.define_training_flags(save_checkpoints_steps=1000)
flag_groups.define_squad_flags()
flag_groups.define_run_flags(
    **{"spm_model_file": None, "vocab_file": None, "albert_hub_module_handle": None},
    **{"train_file": None, "predict_file": None, "do_train": False, "do_predict": False},
    **{"do_lower_case": True, "max_seq_length": 384, "dropout_prob": 0.1, "export_dir": None},
    **{"train_batch_size": 32, "predict_batch_size": 8, "learning_rate": 5e-5},
    **{"num_train_epochs": 3.0, "warmup_proportion": 0.1, "num_workers": 0, "pictures": None},
    **{"official_order": False, "batches_to_sort": 8, "pad_to_multiple": 8},
)


def read_data() -> dict[str, SquadData]:
    """The files of questions that the flags ask for."""
    data = {}
    for phase in ("train", "predict"):
        path = FLAGS[f"{phase}_file"].value
        if FLAGS[f"do_{phase}"].value and not path:
            raise ValueError(f"--do_{phase} needs --{phase}_file, a file of questions")
        if FLAGS[f"do_{phase}"].value:
            data[phase] = read_squad(path, is_training=phase == "train")
    if "predict" in data and FLAGS.mixed_segmentation is not None:
        chinese = FLAGS.mixed_segmentation
        data["predict"] = dataclasses.replace(data["predict"], is_chinese=chinese)
    if FLAGS.question or FLAGS.context:
        data["question"] = one_question(FLAGS.question, FLAGS.context)
    if not data and not FLAGS.export_dir:
        raise ValueError(
            "nothing to do: give --do_train, --do_predict, --export_dir, or --question and "
            "--context"
        )
    return data


def main(_: list[str]) -> None:
    """Trains, evaluates, answers and exports, as the flags say."""
    data = read_data()
    program.adopt_hub_module()
    if FLAGS.export_dir:
        files.make_directory(FLAGS.export_dir, "--export_dir")
    config = program.read_config(FLAGS.output_dir, FLAGS.albert_config_file)
    tokenizer, start = program.read_tokenizer(config), program.first_weights()
    windows = WindowSettings(FLAGS.max_seq_length, FLAGS.doc_stride, FLAGS.max_query_length)
    decoding = DecodingSettings(FLAGS.n_best_size, FLAGS.max_answer_length)

    from albert_tf.finetuning import prediction
    from albert_tf.squad import run as squad_runs
    from albert_tf.squad import task as squad

    program.begin_run(config)
    version_2 = squad.choose_version(
        FLAGS.version_2_with_negative,
        prediction.find_trained(FLAGS.output_dir, start),
        *(data.get(name) for name in ("train", "predict")),
    )
    beams = FLAGS.start_n_top, FLAGS.end_n_top
    task = squad.QuestionAnswering(config, version_2, *beams, FLAGS.dropout_prob)
    settings = squad_runs.AnsweringSettings(
        *(FLAGS.output_dir, start, decoding, FLAGS.predict_batch_size),
        task.padding(FLAGS.max_seq_length, program.padding().multiple),
        *(FLAGS.null_score_diff_threshold, FLAGS.official_threshold),
    )
    plots = FLAGS.do_predict and plot_results.is_wanted(FLAGS.pictures)
    runs, features = {}, {}
    for name, questions in data.items():
        cache = FLAGS[f"{name}_feature_file"].value if name != "question" else ""
        is_training, workers = name == "train", FLAGS.num_workers
        features[name] = squad.prepare(
            questions, tokenizer, windows, is_training, cache, workers, show_progress=True
        )
        if not is_training:
            made_of = tokenizer.checksum, tokenizer.do_lower_case, windows
            args = task, questions, features[name], settings, made_of
            runs[name] = squad_runs.AnsweringRun(*args)
    if FLAGS.do_train:
        evaluator = runs["predict"].evaluator if FLAGS.do_predict else None
        size = len(data["train"].examples)
        program.fine_tune(task, features["train"], evaluator, num_examples=size)
    if FLAGS.do_predict:
        print(runs["predict"].answer(), end="")
    if plots:
        plot_results.plot_run(FLAGS.output_dir, FLAGS.predict_file)
    if "question" in runs:
        print(runs["question"].describe_first(), end="")
    if FLAGS.export_dir:
        where = FLAGS.output_dir, start, FLAGS.export_dir
        extra = FLAGS.albert_config_file, FLAGS.spm_model_file or FLAGS.vocab_file
        squad_runs.export_best(task, *where, FLAGS.max_seq_length, extra)


if __name__ == "__main__":
    program.run(main)
