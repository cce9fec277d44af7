"""What a query means, said as plainly as can be: what a mailbox answers is compared with it."""

from postroom.core.message import SYSTEM_LABELS, Message, label_key
from postroom.core.query import (
    Age,
    And,
    Anywhere,
    Everything,
    Field,
    Has,
    Kind,
    Labelled,
    Me,
    MessageId,
    Not,
    Or,
    Query,
    Since,
    Size,
    Text,
    Until,
    View,
    addresses,
    body_terms,
    bounds,
    restricted,
    terms,
    whole_address,
)
from postroom.core.text import words

ANY = (Field.SUBJECT, Field.FROM, Field.TO, Field.CC, Field.BCC, Field.FILENAME)


def matches(query: Query, message: Message, view: View) -> bool:
    """Whether a mailbox that is asked this query answers with this message."""
    return Judge(message, view).holds(restricted(query))


class Judge:
    """One message in question: each field a text of words between spaces, a phrase a part of it."""

    def __init__(self, message: Message, view: View) -> None:
        self.message = message
        self.view = view
        self.fields = {where: _spaced(found) for where, found in terms(message.mail).items()}
        self.anything = [*(self.fields[where] for where in ANY), _spaced(body_terms(message.mail))]
        self.addresses = addresses(message.mail)
        self.labels = {label_key(label) for label in message.labels}
        self.has = {
            Kind.ATTACHMENT: bool(message.mail.attachments),
            Kind.USERLABELS: bool(message.labels - SYSTEM_LABELS),
        }

    def holds(self, query: Query) -> bool:
        match query:
            case And(parts):
                return all(self.holds(part) for part in parts)
            case Or(parts):
                return any(self.holds(part) for part in parts)
            case Not(part):
                return not self.holds(part)
            case Everything() | Anywhere():
                return True
            case Text(where, text):
                return self._says(where, text)
            case Me(where):
                return any(self._says(where, address) for address in self.view.me)
            case Labelled(key):
                return key in self.labels
            case Has(what):
                return self.has[what]
            case MessageId(value):
                return self.message.mail.message_id.strip("<>") == value
            case Size(larger, count):
                return self.message.size > count if larger else self.message.size < count
            case Since() | Until() | Age():
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
