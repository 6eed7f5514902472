r"""Fine-tunes ALBERT on RACE or on other multiple-choice questions, evaluates it and predicts.

    python run_race.py --data_dir=data --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --output_dir=race_model --do_train --do_eval --do_predict

--data_dir holds RACE/{train,dev,test}/{middle,high}, with all.txt (an article a line) or a file an
article. With --task_name=choice it holds train.jsonl, dev.jsonl and test.jsonl, a JSON object a
line: passage, question, options (two or more), label. Writes checkpoints, model.ckpt-best,
eval_results.txt, predict_results.txt and <task_name>_predictions.jsonl to --output_dir. The same
command again goes on where it stopped.
"""

from absl import flags

from albert_tf.cli import flag_groups, program
from albert_tf.race.reading import LEVELS, QuestionSet, read_questions, read_race

FLAGS = flags.FLAGS

flag_groups.define_model_flags()
flag_groups.define_device_flags()
flag_groups.define_training_flags(save_checkpoints_steps=100)
flag_groups.define_run_flags(
    **{"data_dir": None, "spm_model_file": None, "vocab_file": None, "do_lower_case": True},
    **{"do_train": True, "do_eval": True, "do_predict": False, "max_seq_length": 512},
    **{"train_batch_size": 32, "eval_batch_size": 8, "predict_batch_size": 8},
    **{"learning_rate": 1e-5, "train_step": 12000, "warmup_step": 1000},
    **{"num_train_epochs": 0.0, "warmup_proportion": 0.1, "albert_hub_module_handle": None},
    **{"official_order": False, "batches_to_sort": 8, "pad_to_multiple": 8, "max_bad_rows": 0},
    **{"train_file": "", "predict_file": "", "dropout_prob": 0.1},
)
flags.DEFINE_alias("num_keep_checkpoint", "keep_checkpoint_max")
flags.DEFINE_enum("task_name", "race", ["race", "choice"], "RACE, or questions of your own.")
flags.DEFINE_string("eval_file", "", "TFRecord file to keep the dev features in.")
flags.DEFINE_integer("max_qa_length", 128, "Last tokens of question and option that are kept.")
flags.DEFINE_bool("high_only", False, "Only questions of the level high.")
flags.DEFINE_bool("middle_only", False, "Only questions of the level middle.")
flags.mark_flag_as_required("data_dir")

PHASES = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}
CACHES = {"train": "train_file", "dev": "eval_file", "test": "predict_file"}


def read_split(split: str) -> QuestionSet:
    """Reads the questions of "train", "dev" or "test"."""
    if FLAGS.task_name == "choice":
        return read_questions(FLAGS.data_dir, split, FLAGS.max_bad_rows)
    levels = [level for level in LEVELS if FLAGS[f"{level}_only"].value]
    if len(levels) > 1:
        raise ValueError("--middle_only and --high_only leave no questions: give one of them")
    return read_race(FLAGS.data_dir, split, levels or LEVELS, FLAGS.max_bad_rows)


def predict(predictor, data: QuestionSet) -> None:
    """Answers the questions of the test split; measures the answers if the right ones are known."""
    from albert_tf.finetuning import results
    from albert_tf.race import task as race

    step, outputs = predictor.predict_with_best(FLAGS.output_dir, program.first_weights())
    race.write_predictions(FLAGS.output_dir, data, race.probabilities_of(outputs["logits"]))
    if data.has_labels:
        found = race.evaluate(data, outputs["logits"], FLAGS.predict_batch_size)
        found |= {"global_step": step}
        text = results.write_test_results(FLAGS.output_dir, found, race.SELECTION_METRIC)
        print(text, end="")


def main(_: list[str]) -> None:
    """Trains, evaluates and predicts, as the flags say."""
    program.require_a_phase()
    config = program.read_config(FLAGS.output_dir, FLAGS.albert_config_file)
    tokenizer = program.read_tokenizer(config)
    data = {split: read_split(split) for split, phase in PHASES.items() if FLAGS[phase].value}

    program.begin_run(config)
    from albert_tf.finetuning import prediction, results
    from albert_tf.race import task as race
    from albert_tf.training import evaluation

    task = race.MultipleChoice(config, FLAGS.dropout_prob)
    lengths = FLAGS.max_seq_length, FLAGS.max_qa_length
    features = {
        split: race.make_features(questions, tokenizer, *lengths, FLAGS[CACHES[split]].value)
        for split, questions in data.items()
    }
    model, evaluator = task.build_model(), None
    if FLAGS.do_eval:
        size = FLAGS.eval_batch_size
        predictor = prediction.Predictor(
            model, features["dev"], size, program.padding(), race.OUTPUTS
        )
        evaluator = evaluation.CheckpointEvaluator(
            FLAGS.output_dir,
            model,
            lambda: race.evaluate(data["dev"], predictor.predict()["logits"], size),
            task.selection_metric,
            evaluation.digest(data["dev"].checksum(), tokenizer.checksum, size, *lengths),
            results.write_race_results,
        )
    if FLAGS.do_train:
        program.fine_tune(task, features["train"], evaluator)
    if evaluator is not None:
        last = evaluator.evaluate_all(program.first_weights())[-1]
        print(results.format_metrics(last.metrics), end="")
        print(results.format_best(evaluator.best, task.selection_metric), end="")
    if FLAGS.do_predict:
        size = FLAGS.predict_batch_size
        test_predictor = prediction.Predictor(
            model, features["test"], size, program.padding(), race.OUTPUTS
        )
        predict(test_predictor, data["test"])


if __name__ == "__main__":
    program.run(main)
