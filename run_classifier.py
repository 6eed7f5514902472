r"""Fine-tunes ALBERT on GLUE, CLUE or data of your own, evaluates it, predicts and exports.

    python run_classifier.py --task_name=MRPC --data_dir=glue \
        --albert_config_file=albert_base/albert_config.json \
        --init_checkpoint=albert_base/model.ckpt-best --spm_model_file=albert_base/30k-clean.model \
        --output_dir=mrpc_model --do_train --do_eval --do_predict

--task_name=tsv takes train, dev and test with .tsv, .csv or .jsonl in --data_dir. Writes
checkpoints, model.ckpt-best, eval_results.txt, best_trial.txt, dev_predictions.tsv, pictures and
predictions to --output_dir. With --num_runs or several learning rates each run has a folder in
there, beside sweep_results.txt. The same command again goes on where it stopped.
"""

import math

from absl import flags

from albert_tf import files
from albert_tf.classification import custom
from albert_tf.classification.reading import read_examples
from albert_tf.classification.tasks import ClassificationTask
from albert_tf.cli import flag_groups, program
from albert_tf.finetuning import sweeps
from tools import plot_results

FLAGS = flags.FLAGS

flag_groups.define_model_flags(needs_config=False)
flag_groups.define_device_flags()
flag_groups.define_training_flags(save_checkpoints_steps=1000)
flag_groups.define_learning_rates(5e-5)
flag_groups.define_own_data_flags()
flag_groups.define_run_flags(
    **{"data_dir": None, "task_name": None, "spm_model_file": None, "vocab_file": None},
    **{"cached_dir": None, "albert_hub_module_handle": None, "do_lower_case": True},
    **{"do_train": False, "do_eval": False, "do_predict": False, "max_seq_length": 512},
    **{"train_batch_size": 32, "eval_batch_size": 8, "predict_batch_size": 8},
    **{"train_step": 1000, "warmup_step": 0, "num_train_epochs": 0.0, "warmup_proportion": 0.1},
    **{"optimizer": "adamw", "export_dir": None, "num_runs": 1, "pictures": None},
    **{"early_stopping_patience": 0, "early_stopping_min_delta": 0.0, "max_bad_rows": 0},
    **{"official_order": False, "batches_to_sort": 32, "pad_to_multiple": 8},
)
flags.DEFINE_float("threshold_to_export", float("nan"), "Constant output of the SavedModel.")
flags.DEFINE_bool("use_pooled_output", True, "Classify [CLS]; else the mean of all positions.")
flags.mark_flags_as_required(["data_dir", "task_name"])

PHASES = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}


def read_task(runs: list[sweeps.Run]) -> ClassificationTask:
    """The row of the table of tasks; or a custom task."""
    options = custom.CustomTaskOptions(**{n: FLAGS[n].value for n in custom.OPTION_FLAGS})
    folders = [] if FLAGS.do_train else program.model_folders(runs)
    return custom.find_task(FLAGS.task_name, FLAGS.data_dir, options, folders, FLAGS.max_bad_rows)


def main(_: list[str]) -> None:
    """Trains, evaluates, predicts and exports, as the flags say."""
    program.require_a_phase()
    program.adopt_hub_module()
    runs = program.plan_runs()
    config = program.read_config(FLAGS.output_dir, FLAGS.albert_config_file)
    if FLAGS.export_dir:
        files.make_directory(FLAGS.export_dir, "--export_dir")
    tokenizer, task = program.read_tokenizer(config), read_task(runs)
    splits = [split for split, phase in PHASES.items() if FLAGS[phase].value]
    data = {s: read_examples(task, FLAGS.data_dir, s, FLAGS.max_bad_rows) for s in splits}

    program.begin_run(config)
    from albert_tf.classification import run as classification_runs
    from albert_tf.classification import task as classification
    from albert_tf.finetuning import results
    from albert_tf.training import evaluation

    length, folder = FLAGS.max_seq_length, FLAGS.cached_dir or FLAGS.output_dir
    features = {s: classification.make_features(data[s], tokenizer, length, folder) for s in splits}
    settings = classification_runs.Settings(
        FLAGS.eval_batch_size,
        FLAGS.predict_batch_size,
        program.padding(),
        f"{tokenizer.checksum} {FLAGS.do_lower_case}",
        program.first_weights(),
        evaluation.EarlyStopping(FLAGS.early_stopping_patience, FLAGS.early_stopping_min_delta),
        FLAGS.do_train,
    )
    plots = FLAGS.do_eval and plot_results.is_wanted(FLAGS.pictures)
    classifier = classification.Classifier(task, config, FLAGS.use_pooled_output)

    def make(run: sweeps.Run) -> sweeps.Result:
        with program.folder_of(run):
            this = classification_runs.ClassificationRun(run, classifier, data, features, settings)
            if FLAGS.do_train:
                program.fine_tune(classifier, features["train"], this.evaluator, FLAGS.optimizer)
            result = this.evaluate() if FLAGS.do_eval else sweeps.Result(run)
            if FLAGS.do_eval:
                best = result.metrics | {"global_step": result.step}
                print(f"best checkpoint of {run.folder}\n{results.format_metrics(best)}", end="")
            if FLAGS.do_predict:
                print(this.predict(), end="")
            return result

    best = sweeps.make_runs(runs, make, FLAGS.output_dir, task.selection_metric)
    if plots:
        plot_results.plot_run(FLAGS.output_dir)
    if FLAGS.export_dir:
        this = classification_runs.ClassificationRun(best, classifier, {}, {}, settings)
        threshold = None if math.isnan(FLAGS.threshold_to_export) else FLAGS.threshold_to_export
        this.export(FLAGS.export_dir, threshold, FLAGS.spm_model_file or FLAGS.vocab_file)


if __name__ == "__main__":
    program.run(main)
