r"""Pre-trains ALBERT on records made by create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --albert_config_file=configs/albert_base.json \
        --input_file=records/train*.tfrecord --output_dir=model --do_train --do_eval \
        --eval_input_file=records/held_out.tfrecord --train_batch_size=32 \
        --learning_rate=0.00015 --num_train_steps=10000 --num_warmup_steps=1000

Writes checkpoints (model.ckpt-<step>), metrics.jsonl and TensorBoard summaries to --output_dir,
and with --do_eval eval_results.txt and model.ckpt-best. The same command again goes on where it
stopped.
"""

from absl import flags, logging

from albert_tf.cli import flag_groups, program

FLAGS = flags.FLAGS

flag_groups.define_model_flags()
flag_groups.define_input_flags()
flag_groups.define_device_flags()
flag_groups.define_training_flags()
flags.DEFINE_string("eval_input_file", None, "Held-out records; default: those of --input_file.")
flag_groups.define_run_flags(
    do_train=True, do_eval=False, train_batch_size=4096, eval_batch_size=64
)
flag_groups.define_run_flags(learning_rate=0.00176)  # the peak; it belongs to a batch of 4096
flags.DEFINE_enum("optimizer", "lamb", ["lamb", "adamw"], "LAMB or AdamW.")
flags.DEFINE_float("poly_power", 1.0, "Power of the decay.")
flags.DEFINE_integer("num_train_steps", 125000, "Step at which training ends.", 1)
flags.DEFINE_integer("num_warmup_steps", 3125, "Steps of the linear warm-up.", 0)
flags.DEFINE_integer("start_warmup_step", 0, "Step at which the warm-up begins.", 0)
flags.DEFINE_integer("max_eval_steps", 100, "Batches of an evaluation at most.", 1)
flags.DEFINE_string("export_dir", None, "Accepted for albert_zh's command lines; has no effect.")
flags.DEFINE_bool("scale_learning_rate", False, "The rate is for 4096: square-root rule.")
flags.DEFINE_bool("skip_bad_records", False, "Leave damaged records out, and count them.")
flags.DEFINE_bool("init_from_group0", False, "Start all hidden groups as --init_checkpoint's 0.")
flags.DEFINE_integer("masked_lm_budget", 0, "Only 0: masking while training is not supported.")


def train(task, record_files) -> None:
    """Trains from the newest checkpoint of --output_dir, or anew."""
    from albert_tf import optimization
    from albert_tf.pretraining import hints, input_pipeline
    from albert_tf.pretraining import task as pretraining
    from albert_tf.training import devices

    rate = FLAGS.learning_rate
    if FLAGS.scale_learning_rate:
        rate = hints.scaled_learning_rate(rate, FLAGS.train_batch_size)
        logging.info("--learning_rate=%g for this batch: %g", FLAGS.learning_rate, rate)
    for hint in hints.learning_rate_hints(rate, FLAGS.train_batch_size):
        logging.warning(hint)
    schedule = optimization.WarmUpPolynomialDecay(
        rate,
        FLAGS.num_train_steps,
        FLAGS.num_warmup_steps,
        FLAGS.start_warmup_step,
        FLAGS.poly_power,
    )
    size = FLAGS.train_batch_size
    trainer = program.make_trainer(task, schedule, FLAGS.optimizer)
    trainer.advise = hints.PlateauWatch(pretraining.masked_lm_entropy(task, record_files)).observe
    rows = devices.local_rows(program.strategy(), size)

    def batches_from(step: int):
        dataset = input_pipeline.training_dataset(
            record_files, task.features, size, FLAGS.seed, start=step * size, rows=rows
        )
        return input_pipeline.batches(dataset, record_files, task.features)

    trainer.train(batches_from)
    program.leave_the_rest_to_the_chief()


def evaluate(task, record_files) -> None:
    """Evaluates the checkpoints of --output_dir; writes eval_results.txt and model.ckpt-best."""
    from albert_tf.pretraining import input_pipeline
    from albert_tf.pretraining import task as pretraining
    from albert_tf.training import evaluation, run_directory

    size, steps = FLAGS.eval_batch_size, FLAGS.max_eval_steps
    dataset = input_pipeline.evaluation_dataset(record_files, task.features, size)
    model = task.build_model()
    evaluator = evaluation.CheckpointEvaluator(
        FLAGS.output_dir,
        model,
        evaluation.Evaluator(model, task, dataset, steps).evaluate,
        task.selection_metric,
        evaluation.digest(input_pipeline.identity(record_files), size, steps),
        pretraining.write_pretraining_results,
    )
    last = evaluator.evaluate_all(FLAGS.init_checkpoint)[-1]
    # Unlike in fine-tuning, the results of a run are those of its last checkpoint.
    run_directory.record_results(
        FLAGS.output_dir, {"eval": last.metrics | {"global_step": last.step}}
    )
    print(pretraining.format_results(last), end="")


def main(_: list[str]) -> None:
    """Trains and evaluates, as the flags say."""
    if not FLAGS.do_train and not FLAGS.do_eval:
        raise ValueError("nothing to do: give --do_train, --do_eval or both")
    if FLAGS.masked_lm_budget:
        raise ValueError("--masked_lm_budget: only 0, records with their masks, is supported")
    config = program.read_config(FLAGS.output_dir, FLAGS.albert_config_file)

    program.begin_run(config)
    from albert_tf.pretraining import input_pipeline
    from albert_tf.pretraining.task import PretrainingTask

    task = PretrainingTask(config, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
    skip = FLAGS.skip_bad_records
    record_files = task.find_records(FLAGS.input_file, "input_file", skip)
    eval_files = record_files
    if FLAGS.do_eval and FLAGS.eval_input_file:
        eval_files = task.find_records(FLAGS.eval_input_file, "eval_input_file", skip)
    if FLAGS.do_train:
        input_pipeline.check_batch_size(record_files, FLAGS.train_batch_size)
        train(task, record_files)
    if FLAGS.do_eval:
        evaluate(task, eval_files)


if __name__ == "__main__":
    program.run(main)
