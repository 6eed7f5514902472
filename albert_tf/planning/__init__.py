"""Estimates what a pre-training run costs; see `albert_tf.commands.plan_run`."""
