"""What a query means, and how it is typed: what the mailbox answers, and what `parse` reads, is compared with it."""

import re
from datetime import date

from postroom.core.message import CATEGORIES, SYSTEM_LABELS, Message, label_key
from postroom.core.query import (
    PEOPLE,
    Age,
    And,
    Dated,
    Fact,
    Field,
    Labelled,
    Leaf,
    MessageId,
    Not,
    Or,
    OwnAddress,
    Query,
    QueryContext,
    Size,
    Text,
    addresses,
    bounds,
    restricted,
    terms,
    whole_address,
)
from postroom.core.text import words

KEYWORD = re.compile("OR|AND|NOT|AROUND")
SCALES = {"G": 2**30, "M": 2**20, "K": 2**10, "": 1}
ANY = (Field.SUBJECT, Field.FROM, Field.TO, Field.CC, Field.BCC, Field.FILENAME)


def matches(query: Query, message: Message, view: QueryContext) -> bool:
    """Whether a mailbox that is asked this query answers with this message."""
    return Judge(message, view).holds(restricted(query))


class Judge:
    """One message in question: each field a text of words between spaces, a phrase a part of it."""

    def __init__(self, message: Message, view: QueryContext) -> None:
        self.message = message
        self.view = view
        self.fields = {where: _spaced(found) for where, found in terms(message.mail).items()}
        self.anything = [*(self.fields[where] for where in ANY), _spaced(words(message.mail.text))]
        self.addresses = addresses(message.mail)
        self.labels = {label_key(label) for label in message.labels}
        self.facts = {
            Fact.EVERYTHING: True,
            Fact.ANYWHERE: True,
            Fact.ATTACHMENT: bool(message.mail.attachments),
            Fact.USERLABELS: bool(message.labels - SYSTEM_LABELS),
        }

    def holds(self, query: Query) -> bool:
        match query:
            case And(parts):
                return all(self.holds(part) for part in parts)
            case Or(parts):
                return any(self.holds(part) for part in parts)
            case Not(part):
                return not self.holds(part)
            case Fact():
                return self.facts[query]
            case Text(where, text):
                return self._says(where, text)
            case OwnAddress(where):
                return any(self._says(where, address) for address in self.view.me)
            case Labelled(key):
                return key in self.labels
            case MessageId(value):
                return self.message.mail.message_id.strip("<>") == value
            case Size(larger, count):
                return self.message.size > count if larger else self.message.size < count
            case Dated() | Age():
                return self._dated(*bounds(query, self.view))

    def _dated(self, since: int | None, until: int | None) -> bool:
        date = self.message.date
        return (since is None or since <= date) and (until is None or date < until)

    def _says(self, where: Field, text: str) -> bool:
        # A whole address is that address: `from:amy@example.org` is not what a name may claim.
        whole = whole_address(text)
        if whole and where in self.addresses:
            return whole in self.addresses[where]
        phrase = words(text)
        fields = self.anything if where is Field.ANY else [self.fields[where]]
        return bool(phrase) and any(_spaced(phrase) in each for each in fields)


def _spaced(found: list[str]) -> str:
    return f" {' '.join(found)} "


BARE = re.compile(r"[\w@.][\w@.+/&-]*")
SHOWN_LABELS = {
    **dict.fromkeys(("inbox", "sent", "draft", "spam", "trash"), "in"),
    **dict.fromkeys(("unread", "starred", "important"), "is"),
}


def show(query: Query) -> str:
    """Return the query as one would type it; `parse` reads it back to the same tree."""
    match query:
        case And(parts):
            return " ".join(show(part) for part in parts)
        case Or(parts):
            # An Or within an And goes without brackets, so that showing never nests deeper.
            shown = (f"({show(part)})" if isinstance(part, And) else show(part) for part in parts)
            return " OR ".join(shown)
        case Not(And() | Or() as part):
            return f"-({show(part)})"
        case Not(part):
            return f"-{show(part)}"
    return show_leaf(query)


def show_leaf(leaf: Leaf) -> str:
    match leaf:
        case Text(where, text):
            literally_me = where in PEOPLE and text.lower() == "me"
            shown = f'"{text}"' if literally_me else quoted(text)
            return f"{where.value}:{shown}" if where.value else shown
        case OwnAddress(where):
            return f"{where.value}:me"
        case Labelled(key):
            if (name := key.removeprefix("category_")) != key and name in CATEGORIES:
                return f"category:{name}"
            return f"{SHOWN_LABELS.get(key, 'label')}:{quoted(key)}"
        case Fact():
            return leaf.value
        case Dated(newer, when):
            return f"{'after' if newer else 'before'}:{show_date(when)}"
        case Age(newer, count, unit):
            return f"{'newer' if newer else 'older'}_than:{count}{unit}"
        case Size(larger, count):
            fits = (each for each in SCALES.items() if count and count % each[1] == 0)
            suffix, scale = next(fits, ("", 1))
            return f"{'larger' if larger else 'smaller'}:{count // scale}{suffix}"
        case MessageId(value):
            return f"rfc822msgid:{quoted(value)}"


def quoted(text: str) -> str:
    return text if BARE.fullmatch(text) and not KEYWORD.fullmatch(text) else f'"{text}"'


def show_date(when: date | int) -> str:
    return when.isoformat() if isinstance(when, date) else f"{when:09d}"
