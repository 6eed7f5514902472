"""The outputs of the heads of SQuAD 1.1 and 2.0, and their names in exported models."""

from __future__ import annotations

NOWHERE = -1e30  # logit of padding positions, where no answer can start or end
# The outputs to collect, and their padding values for batches of shorter sequences.
OUTPUTS_V1 = {"start_logits": NOWHERE, "end_logits": NOWHERE}
OUTPUTS_V2 = dict.fromkeys(
    ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"),
    0.0,
)
# As in Google's program, logits are exported as "log_prob"; the other outputs keep their names.
EXPORTED = {"start_logits": "start_log_prob", "end_logits": "end_log_prob"}
EXPORTED |= {name: name for name in OUTPUTS_V2}
