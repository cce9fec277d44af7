"""Triage: what can be decided about a mail, by the person's rules, a model or neither; and what never is by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

Decision = Literal["draft_reply", "archive", "needs_info", "urgent", "delegate"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
DRAFTS: Final[tuple[Decision, ...]] = ("draft_reply", "urgent")  # which write a letter
MAX_TEXT: Final = 10_000  # characters of an answer or a delegation note that a model may write
MAX_WHY: Final = 300
ACKNOWLEDGEMENT: Final = (
    "Thank you for your mail. It has arrived, and I shall come back to you about it."
)
DELEGATED: Final = "This should be somebody else's to answer."


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to become of a mail: the decision, the text that goes with it, and why."""

    decision: Decision
    text: str = ""  # of the answer, or of the delegation note
    why: str = ""


@dataclass(frozen=True, slots=True)
class MailFacts:
    """What is known of a mail beside its words: it is none of the mail's own say."""

    sender: str = ""  # the address, folded of case
    recipients: tuple[str, ...] = ()
    subject: str = ""
    labels: tuple[str, ...] = ()
    list_id: str = ""
    automatic: bool = False
    own: bool = False  # it comes from an address of the account itself
    said: tuple[str, ...] | list[str] = field(default=(), repr=False)  # its words, folded


class Case(NamedTuple):
    """A mail as a model is asked about it: what others wrote is `sender` to `files`."""

    sender: str
    to: str
    subject: str
    date: str
    body: str
    files: tuple[str, ...] = ()
    handbook: str = ""  # the person's own words, as `style`, `wish` and what they are about
    style: str = ""
    wish: str = ""  # what the person wants to be different of the draft
    draft: str = ""


def not_answered(facts: MailFacts, drafts: int, most: int) -> str:
    """Return why no answer to this mail is drafted by itself: it could make a loop."""
    if facts.own:
        return "it comes from this account itself"
    if facts.automatic:
        return "it was sent by a machine"
    if facts.list_id:
        return "it came by a mailing list"
    if drafts >= most:
        return f"{drafts} answers were drafted in this conversation within a day"
    return ""


def settled(judgement: Judgement, obstacle: str) -> Judgement:
    """Return what is really done: an answer that could make a loop is left to the person."""
    if judgement.decision in DRAFTS and obstacle:
        return Judgement("needs_info", "", f"No answer is drafted by itself: {obstacle}.")
    return judgement
