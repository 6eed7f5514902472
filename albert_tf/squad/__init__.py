"""Extractive question answering: SQuAD, CMRC, DRCD."""
