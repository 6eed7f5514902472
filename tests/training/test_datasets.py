"""Datasets that are prefetched and end without delay."""

from __future__ import annotations

import queue

import tensorflow as tf

from albert_tf.training import datasets


def test_the_elements_and_their_order_stay():
    dataset = datasets.prefetch(tf.data.Dataset.range(100))
    assert [int(number) for number in dataset] == list(range(100))


def test_batches_are_prepared_in_advance():
    made: queue.Queue[int] = queue.Queue()

    def make():
        for number in range(100):
            made.put(number)
            yield number

    dataset = tf.data.Dataset.from_generator(make, output_signature=tf.TensorSpec((), tf.int32))
    iterator = iter(datasets.prefetch(dataset))
    assert int(next(iterator)) == 0
    for number in range(1 + datasets.BATCHES_AHEAD):
        assert made.get(timeout=60) == number


def test_autotuning_is_off():
    dataset = tf.data.Dataset.range(100)
    assert datasets.prefetch(dataset).options().autotune.enabled is False
    assert dataset.options().autotune.enabled is not False
