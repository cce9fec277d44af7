"""The person's rules for mail: the list under `## Rules` in Handbook.md, parsed strictly, the first that fits decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, Literal, NamedTuple, get_args

from postroom.core.errors import Corrupt, raise_if
from postroom.core.message import label_key
from postroom.core.policy import covers
from postroom.core.text import words
from postroom.core.values import dataclass

Decision = Literal["draft_reply", "archive", "needs_info", "urgent", "delegate"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
DRAFTS: Final[tuple[Decision, ...]] = ("draft_reply", "urgent")  # which write a letter
_WITH_TEXT: Final[tuple[Decision, ...]] = (*DRAFTS, "delegate")
MAX_TEXT: Final = 10_000  # characters of an answer or a delegation note that a model may write
MAX_WHY: Final = 300
ACKNOWLEDGEMENT: Final = (
    "Thank you for your mail. It has arrived, and I shall come back to you about it."
)
DELEGATED: Final = "This should be somebody else's to answer."


@dataclass(frozen=True, slots=True)
class Judgement:
    decision: Decision
    text: str = ""  # of the answer, or of the delegation note
    why: str = ""


@dataclass(frozen=True, slots=True)
class MailFacts:
    sender: str = ""  # the address, folded of case
    recipients: tuple[str, ...] = ()
    subject: str = ""
    labels: tuple[str, ...] = ()
    list_id: str = ""
    automatic: bool = False
    own: bool = False  # it comes from an address of the account itself
    words: tuple[str, ...] | list[str] = field(default=(), repr=False)  # its words, folded


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


def answer_obstacle(facts: MailFacts, drafts: int, most: int) -> str:
    """Return why no answer to this mail is drafted by itself: it could make a loop."""
    often = f"{drafts} answers were drafted in this conversation within a day"
    obstacles = (
        (facts.own, "it comes from this account itself"),
        (facts.automatic, "it was sent by a machine"),
        (facts.list_id, "it came by a mailing list"),
        (drafts >= most, often),
    )
    return next((why for is_so, why in obstacles if is_so), "")


def prevent_loop(judgement: Judgement, obstacle: str) -> Judgement:
    """Return what is really done: an answer that could make a loop is left to the person."""
    if judgement.decision in DRAFTS and obstacle:
        return Judgement("needs_info", "", f"No answer is drafted by itself: {obstacle}.")
    return judgement


TITLE: Final = "Rules"
MAX_RULES: Final = 500
_RULE: Final = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])\s+(.+)")
_GLUED: Final = re.compile(r"[-+][A-Za-z`]|[0-9]{1,9}[.)][A-Za-z`]|[–—•·]")
_COMMENT: Final = re.compile(r"<!--|-->|%%")
_WHO: Final = re.compile(
    r"""@?[^\s@"'<>*\[\]]+\.[^\s@."'<>*\[\]]+|[^\s@"'<>*\[\]]+@[^\s@"'<>*\[\]]+"""
)
_SPACES: Final = re.compile(r"[ \t]+")
_VALUE: Final = re.compile(r"\s*(?:`([^`]+)`|([^\s,`:][^,`:]*?))\s*(?=,|$|\band\b|:)")
_AND: Final = re.compile(r"\s*\band\s+", re.IGNORECASE)
_OR: Final = re.compile(r"\s*or\b", re.IGNORECASE)
_ABOUT_WORD: Final = re.compile(r"\s*([A-Za-z_]+)")
_REMEDY: Final = "Mend it: docs/orchestrator.md has the form. Until then no mail is triaged."


class Condition(NamedTuple):
    about: str  # a word of `_BY_VALUE` or `_ALONE`
    values: tuple[str, ...] = ()  # any of them fits; none means that it stands alone


@dataclass(frozen=True, slots=True)
class Rule:
    conditions: tuple[Condition, ...]  # all of which fit
    judgement: Judgement
    line: int = 0
    written: str = ""


def _phrase(rule: str, text_words: Sequence[str]) -> bool:
    """Whether the words of a rule stand in a text, in this order and side by side."""
    wanted = words(rule)
    size = len(wanted)
    return any(
        text_words[at : at + size] == wanted
        for at, word in enumerate(text_words[: len(text_words) - size + 1])
        if word == wanted[0]
    )


# What a condition may be about: how a value is compared, and what holds where none stands there.
_BY_VALUE: Final[dict[str, Callable[[str, MailFacts], bool]]] = {
    "from": lambda value, facts: covers(value, facts.sender),
    "to": lambda value, facts: any(covers(value, key) for key in facts.recipients),
    "subject": lambda value, facts: _phrase(value, words(facts.subject)),
    "text": lambda value, facts: _phrase(value, facts.words),
    "label": lambda value, facts: label_key(value) in map(label_key, facts.labels),
    "list": lambda value, facts: value.casefold().strip("<>") == facts.list_id,
}
_ALONE: Final[dict[str, Callable[[MailFacts], bool]]] = {
    "list": lambda facts: bool(facts.list_id),
    "automatic": lambda facts: facts.automatic,
    "anything": lambda _facts: True,
}
_FORM: Final = "`- from `name@example.org`: archive`"


def parse(lines: Iterable[tuple[int, str]]) -> tuple[Rule, ...]:
    """Return the rules of a handbook, from the numbered lines that stand under their heading.

    A rule goes on until a blank line or the next. Other lines are the person's own words. `Corrupt`
    names the line that is wrong.
    """
    items: list[tuple[int, str]] = []
    going_on, before = False, 0
    for number, line in lines:
        going_on = going_on and number == before + 1  # else a heading or code stands between
        blank, before = bool(items) and not going_on, number
        text = _SPACES.sub(" ", line.strip())
        item, indented = _RULE.fullmatch(text), line.startswith((" ", "\t"))
        unfit = going_on and not item and text.startswith(("|", ">", "#", "---"))
        hidden = "a comment would not hide a rule: delete it, or move it elsewhere"
        cut_off = blank and not item and line.startswith(("  ", "\t"))
        _check(
            number,
            (indented and item, "a rule is not indented"),
            (_GLUED.match(text), "a rule begins with `-` and a space"),
            (_COMMENT.search(text), hidden),
            (text and cut_off, "a rule ends at a blank line: put all of it above"),
            (unfit, "this cannot stand in a rule's text: put a blank line before it"),
            (item and len(items) == MAX_RULES, f"{MAX_RULES} rules are the most"),
        )
        if item:
            items.append((number, item[1]))
        elif text and going_on:
            first, words_before = items[-1]
            items[-1] = (first, f"{words_before} {text}")
        going_on = bool(text) and (going_on or bool(item))
    return tuple(_rule(number, text) for number, text in items)


def misplaced(lines: Iterable[tuple[int, str]]) -> int:
    """Return the number of the first of these lines, which stand elsewhere, that is a rule; or 0."""
    for number, line in lines:
        if item := _RULE.fullmatch(line.strip()):
            with suppress(Corrupt):
                _rule(number, item[1])
                return number
    return 0


def _check(number: int, *faults: tuple[object, str]) -> None:
    place = f"Handbook.md, line {number}"
    raise_if(*((is_so, f"{place}: {why}", _REMEDY) for is_so, why in faults), kind=Corrupt)


def _rule(number: int, text: str) -> Rule:
    conditions, rest = _conditions(number, text)
    decision, _, argument = rest.strip().partition(" ")
    argument = argument.strip()
    name = decision.strip("`*_").rstrip(".,;").casefold()
    chosen: Decision | None = next((known for known in DECISIONS if known == name), None)
    refused = argument and chosen not in _WITH_TEXT
    _check(
        number,
        (not chosen, f"{decision[:40]!r} is not a decision; those are {', '.join(DECISIONS)}"),
        (refused, f"{chosen} takes no text, only {', '.join(_WITH_TEXT)} do"),
        (len(argument) > MAX_TEXT, f"the text is longer than {MAX_TEXT:,} characters"),
    )
    return Rule(conditions, Judgement(chosen or "needs_info", argument), number, f"- {text}")


def _conditions(number: int, text: str) -> tuple[tuple[Condition, ...], str]:
    """Return what stands before the colon, and what is after it."""
    found: list[Condition] = []
    at, joint = 0, None
    _check(number, (text.startswith("["), "a rule has no checkbox"))
    while joint or not found:
        about = _ABOUT_WORD.match(text, at)
        word = about[1].casefold() if about else ""
        known = dict.fromkeys((*_BY_VALUE, *_ALONE))
        shown = f"{', '.join(known)}, not {text[at : at + 30].strip()!r}"
        _check(number, (word not in known, f"a rule begins with one of {shown}, as in {_FORM}"))
        values, at = _values(text, about.end() if about else at)
        wordless = word in ("subject", "text") and not all(map(words, values))
        nobody = word in ("from", "to") and not all(map(_WHO.fullmatch, values))
        nothing = f"`{word}` says nothing: what it must be stands after it, without a colon between"
        quoted = any('"' in value for value in values)
        _check(
            number,
            (not values and word not in _ALONE, nothing),
            (values and word not in _BY_VALUE, f"`{word}` stands alone"),
            (wordless, f"`{word}` names no word"),
            (quoted, f"`{word}` needs no quotes: write it as it is, or in backticks"),
            (nobody, f"`{word}` takes addresses and domains"),
        )
        found.append(Condition(word, values))
        joint = _AND.match(text, at)
        at = joint.end() if joint else at
    before, colon, rest = text[at:].partition(":")
    either = "there is no `or`: put commas between values, or write two rules"
    _check(
        number,
        (before.strip() and _OR.match(text, at), either),
        (before.strip() or not colon, f"a colon and a decision are missing, as in {_FORM}"),
    )
    return tuple(found), rest


def _values(text: str, at: int) -> tuple[tuple[str, ...], int]:
    found: list[str] = []
    while not _AND.match(text, at) and (value := _VALUE.match(text, at)):
        found.append(value[1] or value[2])
        at = value.end()
        if not text.startswith(",", at):
            break
        at += 1
    return tuple(found), at


def decide(rules: Sequence[Rule], facts: MailFacts) -> Rule | None:
    return next((rule for rule in rules if all(_fits(c, facts) for c in rule.conditions)), None)


def _fits(condition: Condition, facts: MailFacts) -> bool:
    if not condition.values:
        return _ALONE[condition.about](facts)
    compare = _BY_VALUE[condition.about]
    return any(compare(value, facts) for value in condition.values)
