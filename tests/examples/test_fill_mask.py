"""Words in place of masks."""

from __future__ import annotations

import fill_mask


def test_every_mask_gets_its_best_words(pretrained_dir):
    settings = fill_mask.Settings(str(pretrained_dir), "The [MASK] of the [MASK].", count=2)
    text, *words = fill_mask.run(settings).split("\n")
    assert "[MASK]" not in text
    assert [line.split()[:2] for line in words] == [["[MASK]", n] for n in "1122"]
    scores = [float(line.split()[2]) for line in words]
    assert scores[0] >= scores[1] > 0
