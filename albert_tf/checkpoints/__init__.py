"""Reading, converting and writing checkpoints of all ALBERT families.

Read the modules in this order:

* In: `model_folder` lists a folder, and finds checkpoint, config and vocabulary in it; `releases`
  has the released models that `download` fetches. `containers` opens file formats; `families`
  recognizes whose weights a file contains, by their `weight_names`; `loading` loads them into a
  model, with a `load_report`. `model_source` has all that a folder knows of a model.
* A run: `run_folder` reads, writes and locks its files: the `run_record`, with the name of one of
  the `tasks`, which `record_comparison` compares; and `evaluations`. `store` writes its numbered
  checkpoints.
* Out: `huggingface` and `tokenizer_json` write the files of Hugging Face. What else a model is
  written as is in `albert_tf.export`.
"""
