"""Mail and letters in the words of the documents: cleaned and bounded, each on its line, with no fence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from postroom.core import life
from postroom.core.errors import PostroomError
from postroom.core.message import Party, Summary
from postroom.core.records import Entry
from postroom.core.text import clean, one_line
from postroom.tools.shapes import cut
from postroom.tools.table import MAX_ERROR, Result

MAX_PEOPLE: Final = 20  # of one mail that are named
MAX_ID: Final = 200


class Outcome(Result):
    """What became of a letter or a draft; `letter` is the id of one that was not sent."""

    message: str
    message_id: str = ""
    thread_id: str = ""
    draft_id: str = ""
    letter: str = ""
    status: str = ""


def moment(date: int) -> datetime:
    """Return when a mail came, in UTC."""
    return datetime.fromtimestamp(date, UTC)


def people(parties: tuple[Party, ...]) -> str:
    """Return who is named, as a header writes it."""
    more = [f"and {len(parties) - MAX_PEOPLE} more"] if len(parties) > MAX_PEOPLE else []
    return ", ".join([*(cut(str(party), 200) for party in parties[:MAX_PEOPLE]), *more])


def snippet(summary: Summary, size: int) -> str:
    """Return the beginning of a mail's text, in so many characters."""
    return one_line(summary.snippet)[:size].rstrip()


def body(text: str, size: int) -> str:
    """Return a mail's text, of which no more than this is shown."""
    whole = clean(text).text.strip("\n")
    left = len(whole) - size
    return f"{whole[:size]}\n[{left} more characters]" if left > 0 else whole


def id(text: str) -> str:
    """Return an id that a call gave, as it may be repeated."""
    return one_line(text)[:MAX_ID]


def wrong(error: PostroomError, tool: str) -> str:
    """Return what an error says, without the name of the tool that the answer is of."""
    return one_line(error.message.removeprefix(f"{tool}: "))[:MAX_ERROR]


def told(error: PostroomError, tool: str) -> str:
    """Return what an error says, and what to do next."""
    remedy = one_line(error.remedy)[:MAX_ERROR]
    return f"{wrong(error, tool).rstrip('.')}. {remedy}" if remedy else wrong(error, tool)


def sentence(entry: Entry) -> str:
    """Return what became of a letter that was not sent, where its document has no words for it."""
    said = life.advise_agent(entry.id, entry.state, life.Audience.CONTRACT)
    return one_line(said)[:MAX_ERROR]


def minutes(seconds: float) -> int:
    """Return a time to wait in whole minutes, none too few."""
    return max(1, -int(-seconds // 60))
