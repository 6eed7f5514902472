"""Pre-trains ALBERT and evaluates it: see albert_tf/commands/run_pretraining.py."""

from albert_tf.commands.run_pretraining import main

if __name__ == "__main__":
    main()
