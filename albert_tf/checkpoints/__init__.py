"""Checkpoints of every family of ALBERT: found, recognized, loaded and written.

Read in this order: `names` (what weights are called), `finding` (where they are, with their config
and vocabulary), `containers` (files of weights of any format), `families` (whose weights a file
holds, and how they fit a model), `loading` (into a model, with a report), `store` (the numbered
checkpoints of a run), `trained_with` (what they were trained with), `pretrained` (model and
tokenizer from a folder). `huggingface`, `tf_hub` and `model_garden` write the formats of other
programs.
"""
