r"""Pre-trains ALBERT on records made by create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --albert_config_file=configs/albert_base.json \
        --input_file=records/train*.tfrecord --output_dir=model --do_train --do_eval \
        --eval_input_file=records/held_out.tfrecord --train_batch_size=32 \
        --learning_rate=0.00015 --num_train_steps=10000 --num_warmup_steps=1000

Writes checkpoints (model.ckpt-<step>), metrics.jsonl and TensorBoard summaries to --output_dir,
and with --do_eval eval_results.txt and model.ckpt-best. The same command again goes on where it
stopped.
"""

from absl import flags

from albert_tf import cli

FLAGS = flags.FLAGS

cli.define_model_flags()
cli.define_input_flags()
cli.define_device_flags()
cli.define_training_flags()
flags.DEFINE_string("eval_input_file", None, "Held-out records; default: those of --input_file.")
cli.define_run_flags(do_train=True, do_eval=False, train_batch_size=4096, eval_batch_size=64)
cli.define_run_flags(learning_rate=0.00176)  # the peak; it belongs to a batch of 4096
flags.DEFINE_enum("optimizer", "lamb", ["lamb", "adamw"], "LAMB or AdamW.")
flags.DEFINE_float("poly_power", 1.0, "Power of the decay.")
flags.DEFINE_integer("num_train_steps", 125000, "Step at which training ends.", 1)
flags.DEFINE_integer("num_warmup_steps", 3125, "Steps of the linear warm-up.", 0)
flags.DEFINE_integer("start_warmup_step", 0, "Step at which the warm-up begins.", 0)
flags.DEFINE_integer("max_eval_steps", 100, "Batches of an evaluation at most.", 1)
flags.DEFINE_string("export_dir", None, "Accepted for albert_zh's command lines; has no effect.")
flags.DEFINE_bool("init_from_group0", False, "Start all hidden groups as --init_checkpoint's 0.")
flags.adopt_module_key_flags(cli)
flags.DEFINE_integer("masked_lm_budget", 0, "Only 0: masking while training is not supported.")


def train(task, record_files) -> None:
    """Trains from the newest checkpoint of --output_dir, or anew."""
    import tf_keras

    from albert_tf import checkpoints, input_pipeline, optimization, training

    tf_keras.utils.set_random_seed(FLAGS.seed)
    schedule = optimization.WarmUpPolynomialDecay(
        FLAGS.learning_rate,
        FLAGS.num_train_steps,
        FLAGS.num_warmup_steps,
        FLAGS.start_warmup_step,
        FLAGS.poly_power,
    )
    options = training.TrainingOptions(
        **{field: FLAGS[field].value for field in training.OPTION_FLAGS}
    )
    model = task.build_model()
    optimizer = optimization.create_optimizer(FLAGS.optimizer, schedule)
    trainer = training.Trainer(model, task, optimizer, options)
    if not trainer.restore_latest() and FLAGS.init_checkpoint:
        checkpoints.load_checkpoint(
            model, FLAGS.init_checkpoint, FLAGS.allow_partial_init, FLAGS.init_from_group0
        )

    def batches_from(step: int):
        size = FLAGS.train_batch_size
        dataset = input_pipeline.training_dataset(
            record_files, task.features, size, FLAGS.seed, start=step * size
        )
        return input_pipeline.batches(dataset, record_files)

    trainer.train(batches_from)


def evaluate(task, record_files) -> None:
    """Evaluates the checkpoints of --output_dir; writes eval_results.txt and model.ckpt-best."""
    from albert_tf import input_pipeline, pretraining, training

    dataset = input_pipeline.evaluation_dataset(record_files, task.features, FLAGS.eval_batch_size)
    evaluator = training.Evaluator(task.build_model(), task, dataset, FLAGS.max_eval_steps)
    results = training.evaluate_checkpoints(evaluator, FLAGS.output_dir, FLAGS.init_checkpoint)
    pretraining.write_results(FLAGS.output_dir, results)
    print(pretraining.format_results(results[-1]), end="")


def main(_: list[str]) -> None:
    """Trains and evaluates, as the flags say."""
    if not FLAGS.do_train and not FLAGS.do_eval:
        raise ValueError("nothing to do: give --do_train, --do_eval or both")
    if FLAGS.masked_lm_budget:
        raise ValueError("--masked_lm_budget: only 0, records with their masks, is supported")
    cli.refuse_or_ignore_device_flags()
    config = cli.read_config(FLAGS.output_dir, FLAGS.albert_config_file)

    from albert_tf import input_pipeline
    from albert_tf.pretraining import PretrainingTask

    task = PretrainingTask(config, FLAGS.max_seq_length, FLAGS.max_predictions_per_seq)
    record_files = task.find_records(FLAGS.input_file, "input_file")
    eval_files = record_files
    if FLAGS.do_eval and FLAGS.eval_input_file:
        eval_files = task.find_records(FLAGS.eval_input_file, "eval_input_file")
    if FLAGS.do_train:
        input_pipeline.check_batch_size(record_files, FLAGS.train_batch_size)
        train(task, record_files)
    if FLAGS.do_eval:
        evaluate(task, eval_files)


if __name__ == "__main__":
    cli.run(main)
