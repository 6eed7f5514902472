"""Pre-training of a tiny model on random records, in this process or in one of its own."""

from __future__ import annotations

from albert_tf import pretraining
from albert_tf.cli.flags import parse
from tests.conftest import MAX_PREDICTIONS, SEQ_LENGTH
from tests.pretraining import conftest
from tests.script_runner import start_program
from tests.training import distributed_steps

LENGTHS = [f"--max_seq_length={SEQ_LENGTH}", f"--max_predictions_per_seq={MAX_PREDICTIONS}"]


def write_records(path, count, first=0):
    """Random pre-training records for `tiny_config`, with any number of masked words."""
    batches = map(distributed_steps.batch_of, range(first, first + count))
    rows = ({name: values[-1] for name, values in batch.items()} for batch in batches)
    conftest.write_records(path, [conftest.example(**row) for row in rows])


class Pretraining:
    """Pre-training with a config and records in a folder, and with flags that others replace."""

    def __init__(self, folder, config, num_records, *flags):
        config.to_json_file(str(folder / "config.json"))
        write_records(folder / "train.tfrecord", num_records)
        files = [f"--albert_config_file={folder}/config.json", f"--input_file={folder}/*.tfrecord"]
        self._flags = [*files, *LENGTHS, "--precision=float32", "--noplots", *flags]

    def train(self, output_dir, *flags):
        """Trains in this process, on one device."""
        given = [*self._flags, f"--output_dir={output_dir}", *flags]
        return pretraining.run(parse(pretraining.Settings, given))

    def start(self, output_dir, *flags, code=(), **environment):
        """Starts training in a process of its own."""
        given = [*self._flags, f"--output_dir={output_dir}", *flags]
        return start_program("run_pretraining.py", *given, code=code, **environment)
