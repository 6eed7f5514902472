"""Running text out of manual pages."""

from __future__ import annotations

import manual_pages
import prose

PAGE = r"""'\" t
.\" A comment that is not read.
.TH MILL 1 2023-02-05 "Mill 1.2"
.SH NAME
mill \- grinds corn
.SH DESCRIPTION
The
.B mill
grinds corn, as does
.BR grind (1),
and it doesn\(aqt stop.
.PP
.nf
This example is not part of the text.
.fi
It has \fItwo\fR well\-known stones.
.TP
.B \-\-fast
Grinds the corn faster than it did before.
.TP
slow
Grinds the corn more slowly.
.TS
A table is not part of the text.
.TE
"""


def test_macros_become_running_text():
    sentences, _ = prose.read_prose(manual_pages.read_manual_page(PAGE))
    assert sentences == [
        "The mill grinds corn, as does grind(1), and it doesn't stop.",
        "It has two well-known stones.",
        "Grinds the corn faster than it did before.",
        "Grinds the corn more slowly.",
    ]


def test_pages_in_other_macros_are_left_out():
    assert manual_pages.read_manual_page(".Dd May 1, 2020\n.Sh NAME\n.Nm mill\n") == ""
