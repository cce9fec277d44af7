"""The counts and the random seed of the crash tests.

`POSTROOM_CRASH` is a percentage: 100 is the full count, which `make nightly` runs. `POSTROOM_CRASH_SEED`
seeds the random choices of moments, orders and faults.
"""

from __future__ import annotations

import math
import os

PERCENT = int(os.environ.get("POSTROOM_CRASH", "15"))
SEED = os.environ.get("POSTROOM_CRASH_SEED", "7")


def scaled(full: int) -> int:
    """Return a full count reduced to PERCENT of it, rounded up."""
    return math.ceil(full * PERCENT / 100)


LETTERS = scaled(2_040)  # sent through the local providers
GMAIL_LETTERS = scaled(400)  # sent through Gmail's double, by each way of sending
MAILS = scaled(1_200)  # that come in while `postroom run` is killed
SECONDS = float(
    scaled(60)
)  # of agents at work in the vault, and of agents that write to each other
