"""Reading, converting and writing checkpoints of all ALBERT families.

Read the modules in this order: `finding` (finds checkpoints, configs and vocabularies),
`containers` (opens the file formats), `families` (recognizes whose weights a file contains, and
maps their names to a model), `loading` (loads them into a model, with a report), `run_folder` and
`run_record` (the files of a run, and what it trained with), `store` (its numbered checkpoints),
`releases` (the table of released models) and `download`. `huggingface` and `saved_model` write the
formats of others, and `tokenizer_json` Hugging Face's tokenizers.
"""
