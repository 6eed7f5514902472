"""Predicts from text with a trained model: see albert_tf/commands/run_predict.py."""

from albert_tf.commands.run_predict import main

if __name__ == "__main__":
    main()
