"""Pre-trains ALBERT and evaluates it: see albert_tf/pretraining/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-pretraining")
