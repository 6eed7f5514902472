"""Fine-tunes ALBERT on multiple-choice questions: see albert_tf/commands/run_race.py."""

from albert_tf.commands.run_race import main

if __name__ == "__main__":
    main()
