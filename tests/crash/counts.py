"""How long the crash tests go on, and by which dice.

`POSTROOM_CRASH` is a percentage: 100 is the full count, which `make nightly` runs. `POSTROOM_CRASH_SEED`
chooses other moments, orders and faults.
"""

from __future__ import annotations

import math
import os

PERCENT = int(os.environ.get("POSTROOM_CRASH", "15"))
SEED = os.environ.get("POSTROOM_CRASH_SEED", "7")


def share(full: int) -> int:
    """Return how many of so many this run has, rounded up."""
    return math.ceil(full * PERCENT / 100)


LETTERS = share(2_040)  # through the providers on this machine
GMAIL_LETTERS = share(400)  # through Gmail, by each way of sending
MAILS = share(1_200)  # that come in while `postroom run` is killed
SECONDS = float(share(60))  # of agents at work in the vault, and of agents that write to each other
