"""Predicts from text with a trained model: see albert_tf/inference/."""

from albert_tf.cli.programs import main

if __name__ == "__main__":
    main("run-predict")
