"""Reading, converting and writing checkpoints of all ALBERT families.

Read the modules in this order: `families` (names of the weights), `finding` (finds checkpoints,
configs and vocabularies), `containers` (opens the file formats), `families` (recognizes whose
weights a file contains, and maps them to a model), `loading` (loads them into a model, with a
report), `store` (the numbered checkpoints of a run), `run_record` (what they were trained with),
`pretrained` (loads model and tokenizer from a folder), `releases` (the table of released models),
`download` and `download` (download models). `huggingface` writes the format of transformers.
"""
