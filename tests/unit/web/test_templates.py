"""Every template with hostile text in every field: it stays text, and adds no element and no attribute."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, date
from enum import Enum
from typing import Any

import pytest
from jinja2 import FunctionLoader, UndefinedError
from markupsafe import Markup

from postroom.core import life
from postroom.core.letter import Enclosure, Letter
from postroom.core.life import Verdict
from postroom.core.message import Mail, Message, Party
from postroom.core.policy import Rules, SendMeter
from postroom.core.records import (
    AgentActivity,
    Card,
    CardItem,
    CardLine,
    Check,
    Entry,
    LetterSummary,
    Level,
)
from postroom.core.stamp import Stamp
from postroom.web import templates
from postroom.web.letter_view import LetterView, view_letter
from postroom.web.queue import Group, Queue, QueueView
from postroom.web.sessions import BrowserSession
from postroom.web.templates import ENVIRONMENT, letter_changes
from tests.desks import ANN, BOB, CAT, START, YOU
from tests.unit.web.browser import Node, parsed

HOSTILE = (
    (
        "\"><script>alert(1)</script> ' onmouseover='alert(1) </title></textarea></style><img src=x onerror=alert(1)>"
        " {{ 7 * 7 }} {% raw %} {# x #} %s {0.__class__} <!-- ]]> &lt;b&gt; &#60; `<b>` `"
    ),
    "javascript:alert(1)",
)
NOW = Stamp(START, "boot", 10.0)
EARLIER = Stamp(START - 3600, "boot", 0.0)
VERDICT = Verdict("ada", life.Channel.PAGE, EARLIER, "sha256:0")
STATES: tuple[life.State, ...] = (
    life.Rehearsal(EARLIER),
    life.Pending(EARLIER),
    life.Pending(Stamp(START - 70 * 3600, "another boot", 0.0)),  # it expires soon
    life.Approved(VERDICT, EARLIER, 10.0),
    life.Approved(VERDICT, EARLIER, 9999.0, "busy"),
    life.Approved(VERDICT, EARLIER, 10.0, "busy"),
    life.Approved(VERDICT, EARLIER, 9999.0, "10 of 10 letters", code="rate_limited"),
    life.Approved(replace(VERDICT, via=life.Channel.NOT_REQUIRED), EARLIER, 10.0),
    life.Sending(VERDICT, EARLIER, "wire", 1, EARLIER),
    life.Sent(EARLIER, "id", "thread", ("bob@example.net",), VERDICT, "found later"),
    life.Rejected(EARLIER, "ada", "too long"),
    life.Rejected(EARLIER, "ada", "shorter", True),
    life.Withdrawn(EARLIER),
    life.Expired(EARLIER),
    life.Failed(EARLIER, "refused"),
    life.Unknown(EARLIER, "lost", EARLIER, VERDICT),
)
# Fields whose values the code compares or looks up; they never come from others. `box`, `image` and the middle of
# a view's `lines` are of Postroom's own making.
FIXED = {"level", "place", "boot", "offers", "event", "box", "image", "then"}


def poisoned(value: Any, text: str, name: str = "") -> Any:
    """Return a copy of a value in which every text is this one; what is compared or looked up stays.

    A text that is empty stays so, since templates leave its element out, and a very long one stays very long.
    """
    if isinstance(value, Markup | Enum) or name in FIXED:
        return value
    if isinstance(value, str):
        return text * max(1, len(value) // 10_000) if value else ""
    if isinstance(value, Group):  # its name finds its title
        return value._replace(letters=poisoned(value.letters, text))
    if isinstance(value, LetterView):
        return _poisoned_view(value, text)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(poisoned(getattr(value, one), text, one) for one in value._fields))
    if isinstance(value, tuple | list):
        return type(value)(poisoned(one, text) for one in value)
    if isinstance(value, dict):
        return {key: poisoned(one, text, key) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        copy = object.__new__(type(value))  # without its own checks: the page must not rely on them
        for field in fields(value):
            object.__setattr__(copy, field.name, poisoned(getattr(value, field.name), text, field.name))  # fmt: skip
        return copy
    return value


def _poisoned_view(view: LetterView, text: str) -> LetterView:
    """Return a view with the same notes, boxes and anchors: the recipients of the poisoned letter have them too."""
    notes = [poisoned(note, text) for note in view.notes]
    people = [one for one in letter().envelope if one.spec in view.people]
    return view._replace(
        segments=poisoned(view.segments, text),
        notes=notes,
        people={poisoned(one, text).spec: poisoned(view.people[one.spec], text) for one in people},
        files=poisoned(view.files, text),
        lines=[(poisoned(line, text), anchor, box) for line, anchor, box in view.lines],
        facts=poisoned(view.facts, text),
    )


TEXT = "Good day, the password is hunter2. Pay €4,500 to DE89 or ask bob@example.net at https://a.example/x.\n"


def place(words: str) -> tuple[tuple[int, int]]:
    start = TEXT.index(words)
    return ((start, start + len(words)),)


def letter() -> Letter:
    files = (
        Enclosure("plan.txt", "text/plain", b"<b>Good day</b>"),
        Enclosure("empty.txt", "text/plain", b""),
        Enclosure("photo.png", "image/png", b"\x89PNG\r\n\x1a\n1234"),
        Enclosure("program.exe", "application/x-msdownload", b"MZ\0\xff"),
    )
    return Letter(
        id="aaaaaaaaaa", account="default", sender=YOU, to=(ANN,), cc=(BOB,), bcc=(CAT,), reply_to=(BOB,),
        subject="Hello", text=TEXT, html="<p>Good day</p>", attachments=files, in_reply_to="<q@x>", thread="t",
    )  # fmt: skip


def card() -> Card:
    """Return a card with lines of each level, about all that a letter can hold, and items of every kind."""
    red, amber, fact = (
        [(level, kind, f"Something about {kind}.", about) for kind, about in lines]
        for level, lines in (
            (Level.STOP, (("secrets", ("a password",)), ("attachment", ("program.exe",)), ("look_alike", (ANN.spec,)), ("automatic", ()))),
            (Level.LOOK, (("links", ("https://a.example/x", "gone")), ("first_contact", (CAT.spec,)))),
            (Level.PLAIN, (("amount", ("€4,500",)), ("attachment", ("plan.txt",)))),
        )
    )  # fmt: skip
    items = (
        CardItem("recipient", ANN.spec, "Ann's mail", "default m1"),
        CardItem("recipient", BOB.spec, "Ann's mail", "", place(BOB.spec)),
        CardItem("recipient", CAT.spec, ""),
        CardItem("answers to", BOB.spec, ""),
        CardItem("link", "https://a.example/x", "Ann's mail", "default m1", place("https://a.example/x")),
        CardItem("picture", "https://a.example/p.png", ""),
        CardItem("address", "dora@example.com", ""),
        CardItem("number", "DE89", "Ann's mail", "default m1", place("DE89")),
        CardItem("code", "a code", "Ann's mail"),
        CardItem("amount", "€4,500", "", "", place("4,500 to DE89")),  # which overlaps the number
        CardItem("secret", "a password", "", "", place("hunter2")),
    )  # fmt: skip
    return Card(tuple(CardLine(*line) for line in (*red, *amber, *fact)), items)


def entry(state: life.State, **changes: Any) -> Entry:
    return Entry(
        letter=letter(), agent="claude", state=state, created=EARLIER, card=card(), digest="sha256:0", content_key="k",
        home="Pending_Approval", origins=("agent", "mail"), version=2, **changes,
    )  # fmt: skip


def views() -> list[tuple[Entry, LetterView]]:
    """Return letters with what is shown of them: with and without boxes, places, a card, files or a text."""
    full, calm = entry(STATES[1]), entry(STATES[1], is_edited=True)
    calm = replace(calm, letter=replace(calm.letter, attachments=(), html="", thread="", reply_to=()), card=Card())  # fmt: skip
    empty = replace(calm, letter=replace(calm.letter, text="", subject=""))
    shown = [(full, view_letter(full, full.card, has_boxes=has_boxes)) for has_boxes in (True, False)]  # fmt: skip
    return [*shown, *((one, view_letter(one, one.card)) for one in (calm, empty))]


def summary(state: life.State, **changes: Any) -> LetterSummary:
    values = LetterSummary("aaaaaaaaaa", "claude", "ann@example.com, bob@example.net", "Hello", 2, "A warning", EARLIER, state, {}, "secrets", "default", "Ann", "Good day", 2)  # fmt: skip
    return values._replace(**changes)


GROUPS = ("unknown", "failed", "look", "plain", "held", "sending", "rehearsal")
VIEWS = (QueueView(), QueueView("words", "ann", "claude", "default", "red", "2"), QueueView(q="x"))


def queues() -> list[Queue]:
    """Return queues: with every state in every group, filtered, empty, and of several accounts."""
    every = [summary(state) for state in STATES]
    every += [summary(STATES[1], level=level, recipient_name="", recipients="ann@example.com", id=f"b{level}", opening="", reason="new") for level in Level]  # fmt: skip
    groups = tuple(Group(name, every[at :: len(GROUPS)], 7) for at, name in enumerate(GROUPS))
    full = Queue(groups, 500, 2, VIEWS[0], ("claude", "codex"), ("default", "work"), False, "aaaaaaaaaa")  # fmt: skip
    return [
        full,
        *(full._replace(view=view, chosen="b1", accounts=("default",)) for view in VIEWS[1:]),
        *(Queue((), 0, 1, view, (), (), True) for view in VIEWS),
    ]


def toasts() -> list[dict[str, Any] | None]:
    waits, leaves, held = (entry(state) for state in (STATES[1], STATES[3], STATES[4]))
    value = {"sentence": "Approved.", "entry": leaves, "event": "undo", "is_elsewhere": True, "first": ["Ann", "Bob", "Cat"]}  # fmt: skip
    return [
        None,
        value,
        value | {"entry": held, "first": ["Ann"], "is_elsewhere": False},
        value | {"entry": waits, "event": "", "first": []},
    ]


def frame(*, live: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "session": BrowserSession("s", "ada"), "rules": Rules(live=live, source="test", required=live, undo_seconds=10 * live),
        "zone": UTC, "now": NOW, "waiting": 3, "meter": SendMeter(10, 10, 3600, NOW, 60.0), "notices": [("note", "Look at `this`.")],
        "queue": Queue((Group("look", [summary(STATES[1])], 1),), 1, 1, VIEWS[0], ("claude",), ("default",), False), "query": "", "toast": None, **changes,
    }  # fmt: skip


def pages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every page with the values that it shows: each field has a text."""
    days = {20_407 - n: {"approved": 1, "rejected": 1, "sent": 1} for n in range(5)}
    chart = templates.chart(days, date(2025, 11, 15))
    assert chart
    changed = replace(letter(), text="Good evening\n", subject="Hi", to=(BOB,), html="")
    typed = {"to": "a", "cc": "b", "bcc": "c", "subject": "d", "text": "e"}
    checks = [Check("disk", "fail", "full", "Free `space`."), Check("vault", "ok", "fine")]
    mail = Mail(
        message_id="<q@x>", sender=Party("Ann", "ann@example.com"), subject="Q", text="Shall we?"
    )
    messages = [Message("m1", "t1", int(START), 10, frozenset(), one) for one in (mail, Mail())]
    thread = {"messages": messages, "total": 30, "answered": "<q@x>", "error": ""}
    query = {"q": "words", "state": "sent", "agent": "claude"}
    authors = [AgentActivity("claude", {"sent": 2, "pending": 1}, START, 8, 5, edited, 1) for edited in (0, 7)]  # fmt: skip
    present = {"claude": ("ready", 3), "bob": ("here", 0)}
    differences = letter_changes(changed, letter()) + letter_changes(letter(), changed)
    (full, with_boxes), (_, without_boxes), *others = views()
    item = CardItem("number", "DE89", "Ann's mail", "default m1")
    source = {
        "is_open": False,
        "item": item,
        "message": messages[0],
        "sentence": "Shall we?",
        "error": "",
    }
    history = [life.Pending(EARLIER), *STATES]
    for live in (True, False):
        base = {"frame": frame(live=live)}
        for state in STATES:
            values = {
                "entry": entry(state), "view": without_boxes, "history": history, "changes": differences, "note_difference": "-a +b",
                "offers": life.offered(state), "replaced_by": "bbbbbbbbbb", "place": "/letter",
            }  # fmt: skip
            yield "letter.html", {**base, **values}
            calm = {"note_difference": "", "changes": [], "replaced_by": "", "view": with_boxes}
            yield "letter.html", {**base, **values, **calm}
            yield "print.html", {**values, "head": 3, "zone": UTC, "now": NOW}
        for one, shown in others:
            given = {"entry": one, "view": shown, "history": history[:1], "changes": [], "note_difference": "", "offers": life.offered(one.state), "replaced_by": "", "place": "/"}  # fmt: skip
            yield "letter.html", {**base, **given}
            yield "print.html", {**given, "head": 3, "zone": UTC, "now": NOW}
        long = replace(full, letter=replace(full.letter, text="long words " * 20_000))
        yield "letter.html", {**base, **given, "entry": long, "view": view_letter(long, card())}
        for queue in queues():
            framed = frame(live=live, queue=queue, query=queue.view.query)
            yield "letter.html", {**base, **given, "frame": framed}
            yield "summary.html", {"frame": framed, "chart": chart}
            yield "summary.html", {"frame": framed, "chart": None}
        for toast in toasts():
            yield "letter.html", {**given, "frame": frame(live=live, toast=toast, queue=queues()[-1])}  # fmt: skip
        for meter in (SendMeter(0, 10, 3600, NOW, 0.0), SendMeter(0, 0, 60, NOW, 60.0)):
            yield "health.html", {"frame": frame(live=live, meter=meter, queue=None), "checks": []}
        yield "edit.html", {**base, "entry": full, "fields": typed, "error": "Wrong `x`."}
        yield "edit.html", {**base, "entry": others[0][0], "fields": typed, "error": ""}
        values = {"entry": full, "card": full.card, "fields": typed}
        for shown in (with_boxes, without_boxes):
            yield "preview.html", {**base, **values, "changes": differences, "view": shown}
        yield "history.html", {**base, "query": query, "number": 2, "letters": [summary(state) for state in STATES], "total": 500, "chart": chart}  # fmt: skip
        yield (
            "history.html",
            {**base, "query": query, "number": 2, "letters": [], "total": 0, "chart": None},
        )
        yield "agents.html", {**base, "authors": authors, "present": present, "error": ""}
        yield "agents.html", {**base, "authors": [], "present": {}, "error": "Cannot read it"}
        yield "health.html", {**base, "checks": checks}
        for part, piece in (
            ("thread.html", thread),
            ("thread.html", thread | {"error": "down"}),
            ("source.html", source | {"is_open": True}),
            ("source.html", source | {"message": messages[1]}),
            ("source.html", source | {"sentence": ""}),
            ("source.html", source | {"message": None, "error": "down"}),
            ("chain.html", {"head": 3, "faults": ["2026-11-15.json:3: changed"]}),
            ("chain.html", {"head": 3, "faults": []}),
            ("checks.html", {"checks": checks}),
        ):
            yield part, {**base, **piece}
            yield (
                "part.html",
                {**base, **piece, "part": Markup(part), "title": "Title", "back": "/history"},
            )
    for error in ("", "Wrong."):
        yield "sign_in.html", {"ticket": "t1", "needs_passphrase": bool(error), "error": error}
        yield "locked.html", {"action": "/unlock", "fields": {"next": "/"}, "error": error}
    yield "error.html", {"title": "Refused", "cause": "Because.", "remedy": "Do `this`."}
    yield "signed_out.html", {}
    yield "redirect.html", {"address": "http://127.0.0.1/in/t1"}


def shape(page: Node) -> list[tuple[str, tuple[str, ...]]]:
    """Return all elements with the names of their attributes, but for marks of hidden characters and code."""
    nodes = (node for node in page if node.tag not in {"b", "code"})
    return [(node.tag, tuple(sorted(node.attrs))) for node in nodes]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_any_field_of_any_template_stays_text(text: str) -> None:
    calm = "x" * len(text)
    for name, values in pages():
        template = ENVIRONMENT.get_template(name)
        hostile = template.render(poisoned(values, text))
        page = parsed(hostile)
        assert shape(page) == shape(parsed(template.render(poisoned(values, calm)))), name
        for node in page:
            assert node.tag not in {"iframe", "object", "base"}, name
            assert not [one for one in node.attrs if one.startswith("on")], name
            links = [node.attrs[one] for one in ("href", "src", "action") if one in node.attrs]
            if name not in TRUSTED_ADDRESS:
                assert all(one.startswith(("/", "#")) for one in links), (name, links)


# Their address is the code's own: a path of the request, or the sign-in address.
TRUSTED_ADDRESS = {"locked.html", "redirect.html", "part.html"}


def test_the_text_of_every_field_is_shown() -> None:
    """What was typed, and what others wrote, can be read on the page in the letters that they used."""
    text = "Ünïcode & <i>"
    for name, values in pages():
        if values:
            page = parsed(ENVIRONMENT.get_template(name).render(poisoned(values, text)))
            shown = page.text + " ".join(value for node in page for value in node.attrs.values())
            assert text in shown or name in {"chain.html"}, name


def test_every_template_is_rendered_by_these_tests() -> None:
    used = set()

    def load(name: str) -> str:
        used.add(name)
        assert ENVIRONMENT.loader
        return ENVIRONMENT.loader.get_source(ENVIRONMENT, name)[0]

    recording = ENVIRONMENT.overlay(loader=FunctionLoader(load))
    for name, values in pages():
        recording.get_template(name).render(values)
    assert used == set(ENVIRONMENT.list_templates())


def test_a_name_that_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ nothing }}").render()
    with pytest.raises(UndefinedError):
        ENVIRONMENT.get_template("error.html").render(title="a", cause="b")


def test_no_template_marks_a_value_as_safe_or_has_a_script_or_style_of_its_own() -> None:
    assert ENVIRONMENT.loader
    for name in ENVIRONMENT.list_templates():
        source = ENVIRONMENT.loader.get_source(ENVIRONMENT, name)[0]
        for forbidden in ("|safe", "| safe", "autoescape", "<style", " style=", "javascript:"):
            assert forbidden not in source, (name, forbidden)
        assert source.count("<script") == (name == "base.html"), name


def test_no_room_but_the_page_imports_the_templates() -> None:
    script = """
import importlib, pkgutil, sys
import postroom
for room in ("cli", "tools", "orchestrator", "wiring", "services", "desk"):
    package = importlib.import_module(f"postroom.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"postroom.{room}."):
        importlib.import_module(module.name)
sys.exit(", ".join({"jinja2", "markupsafe", "postroom.web"} & set(sys.modules)) or 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
