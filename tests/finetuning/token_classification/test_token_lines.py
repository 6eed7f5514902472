"""What is a token in a file of columns, and what is none."""

import logging

import pytest

from albert_tf.finetuning.token_classification.token_lines import find_sentences

# The first two sentences of the format's own page, and an empty node: words and parts of speech.
CONLLU = """\
# sent_id = 1
# text = vámonos al mar
1-2	vámonos	_	_
1	vamos	ir	VERB
2	nos	nosotros	PRON
3-4	al	_	_
3	a	a	ADP
4	el	el	DET
5	mar	mar	NOUN

# text = Sue likes coffee and Bill tea
1	Sue	Sue	PROPN
2	likes	like	VERB
3	coffee	coffee	NOUN
4	and	and	CCONJ
5	Bill	Bill	PROPN
5.1	likes	like	VERB
6	tea	tea	NOUN
"""
GERMEVAL = """\
#	http://de.wikipedia.org/wiki/Manfred_Korfmann [2009-10-17]
1	Aufgrund	O	O
2	Troia	B-LOC	O
"""
MULTICONER = "# id 5239d808-f300\tdomain=en\nthe _ _ O\nriver _ _ B-LOC\n"
ONTONOTES = "#begin document (bc/1); part 000\na O\nb B-X\n\n#end document\n"
TWEETS = "#gaza B-LOC\n# O\nx O\n\n#x O\n"


def read(text, token=0, label=-1):
    found = find_sentences("train.conll", lambda: text.split("\n"), token, label)
    return ["|".join(cells[token] for _, cells in sentence) for sentence in found]


@pytest.mark.parametrize(
    ("text", "columns", "tokens", "said"),
    [
        (
            CONLLU,
            (1, 3),
            ["vamos|nos|a|el|mar", "Sue|likes|coffee|and|Bill|tea"],
            [
                "3 × comment; the first is line 1, ",
                "2 × range of tokens; the first is line 3, ",
                "1 × empty node; the first is line 17, ",
            ],
        ),
        (GERMEVAL, (1, 2), ["Aufgrund|Troia"], ["1 × comment; the first is line 1, "]),
        (MULTICONER, (0, -1), ["the|river"], ["1 × comment; the first is line 1, "]),
        (ONTONOTES, (0, -1), ["a|b"], ["2 × comment; the first is line 1, "]),
        ("a O\n# about\nb B-X\n", (0, -1), ["a|b"], ["1 × comment; the first is line 2, "]),
        (TWEETS, (0, -1), ["#gaza|#|x", "#x"], []),
        ("#gaza\n#\nx\n", (0, -1), ["#gaza|#|x"], []),
        ("#\tQ\n#a\tQ\n", (0, 1), ["#|#a"], []),
        ("1.1 O\n1-2 O\n2 O\n1 O\n", (0, -1), ["1.1|1-2|2|1"], []),  # they are the tokens
        ("1.1\ta\tO\n1.2\tb\tO\n", (1, -1), ["a|b"], []),  # numbers of another kind
        (
            "1-2 du X\n1 de O\n2 le O\n2.1 x O\n",
            (1, -1),
            ["de|le"],
            ["1 × range of tokens", "1 × empty node"],
        ),
        ("0.1\tx\tO\n1\ta\tO\n", (1, -1), ["a"], ["1 × empty node"]),
    ],
)
def test_what_is_no_token_is_left_out_and_counted(text, columns, tokens, said, caplog):
    caplog.set_level(logging.INFO)
    assert read(text, *columns) == tokens
    assert len(caplog.messages) == len(said)
    for message, part in zip(caplog.messages, said, strict=True):
        assert f"train.conll: left out as no token: {part}" in message


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("北 B-LOC\n  O\n京 O\n", "北| |京"),
        ("北\tB-LOC\n \tO\n京\tO\n", "北| |京"),
        (" a O\n b O\n", "a|b"),  # spaces before all lines
        ("a O\n b\tO\n", "a| b"),
    ],
)
def test_a_token_may_be_a_space(text, tokens):
    assert read(text) == [tokens]


@pytest.mark.parametrize(("text", "columns"), [(CONLLU, (0, 3)), (GERMEVAL + "3\ta\tO\tO", (0, 2))])
def test_numbers_of_tokens_are_not_taken_for_tokens(text, columns):
    with pytest.raises(ValueError, match=r"train.conll, line \d: .* counts the .* --token_column"):
        read(text, *columns)


def test_numbers_may_be_tokens():
    assert read("1 O\n2 O\n\n1 O\n2 O\n") == ["1|2", "1|2"]
    assert read("1 O\n2 O\n3 O\n\n7 O\n") == ["1|2|3", "7"]
    assert read("\n") == []
