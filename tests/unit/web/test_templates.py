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
from postroom.web.sessions import BrowserSession
from postroom.web.templates import ENVIRONMENT, letter_changes
from tests.desks import ANN, BOB, CAT, START, YOU
from tests.unit.web.browser import parsed

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
    life.Approved(VERDICT, EARLIER, 10.0),
    life.Approved(VERDICT, EARLIER, 9999.0, "busy"),
    life.Sending(VERDICT, EARLIER, "wire", 1, EARLIER),
    life.Sent(EARLIER, "id", "thread", ("bob@example.net",), VERDICT, "found later"),
    life.Rejected(EARLIER, "ada", "too long"),
    life.Rejected(EARLIER, "ada", "shorter", True),
    life.Withdrawn(EARLIER),
    life.Expired(EARLIER),
    life.Failed(EARLIER, "refused"),
    life.Unknown(EARLIER, "lost", EARLIER, VERDICT),
)
# Fields whose values the code compares or looks up; they never come from others.
FIXED = {"level", "place", "boot"}


def poisoned(value: Any, text: str, name: str = "") -> Any:
    """Return a copy of a value in which every text is this one; what is compared or looked up stays."""
    if isinstance(value, Markup | Enum) or name in FIXED:
        return value
    if isinstance(value, str):
        return text
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(poisoned(getattr(value, one), text, one) for one in value._fields))
    if isinstance(value, tuple | list):
        return type(value)(poisoned(one, text) for one in value)
    if isinstance(value, dict):
        return {key: poisoned(one, text) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        copy = object.__new__(type(value))  # without its own checks: the page must not rely on them
        for field in fields(value):
            object.__setattr__(copy, field.name, poisoned(getattr(value, field.name), text, field.name))  # fmt: skip
        return copy
    return value


def letter() -> Letter:
    file = Enclosure("plan.txt", "text/plain", b"x")
    return Letter(
        id="aaaaaaaaaa", account="default", sender=YOU, to=(ANN,), cc=(BOB,), bcc=(CAT,), reply_to=(BOB,),
        subject="Hello", text="Good day\n", html="<p>Good day</p>", attachments=(file,), in_reply_to="<q@x>", thread="t",
    )  # fmt: skip


def entry(state: life.State) -> Entry:
    lines = [CardLine(level, "first_contact", "You have never written to Ann.") for level in Level]
    card = Card(tuple(reversed(lines)), (CardItem("link", "https://a.example", "Ann's mail"), CardItem("link", "x", "")))  # fmt: skip
    return Entry(
        letter=letter(), agent="claude", state=state, created=EARLIER, card=card, digest="sha256:0", content_key="k",
        home="Pending_Approval", origins=("agent",), version=2,
    )  # fmt: skip


def summary(state: life.State) -> LetterSummary:
    return LetterSummary("aaaaaaaaaa", "claude", "ann@example.com, bob@example.net", "Hello", 2, "A warning", EARLIER, state)  # fmt: skip


def frame(*, live: bool = True, **changes: Any) -> dict[str, Any]:
    every = [summary(state) for state in STATES]
    queue = {"unknown": every, "failed": [], "approved": [], "waiting": every[:2], "total": 500, "number": 2, "rehearsed": False, "chosen": ""}  # fmt: skip
    return {
        "session": BrowserSession("s", "ada"), "rules": Rules(live=live, source="test", required=live),
        "zone": UTC, "now": NOW, "waiting": 3, "meter": SendMeter(10, 10, 3600, NOW, 60.0), "notices": [("note", "Look at `this`.")], "queue": queue, **changes,
    }  # fmt: skip


def pages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every page with the values that it shows: each field has a text."""
    days = {20_407: {"approved": 1, "rejected": 1, "sent": 1}}
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
    authors = [AgentActivity("claude", {"sent": 2, "pending": 1}, START)]
    present = {"claude": ("ready", 3), "bob": ("here", 0)}
    differences = letter_changes(changed, letter()) + letter_changes(letter(), changed)
    for live in (True, False):
        base = {"frame": frame(live=live)}
        for state in STATES:
            view = {
                "entry": entry(state), "history": [life.Pending(EARLIER), *STATES], "changes": differences, "note_difference": "-a +b",
                "offers": life.offered(state), "replaced_by": "bbbbbbbbbb",
            }  # fmt: skip
            yield "letter.html", {**base, **view}
            yield "letter.html", {**base, **view, "note_difference": "", "changes": []}
        yield "edit.html", {**base, "entry": entry(STATES[1]), "fields": typed, "error": "Wrong `x`."}  # fmt: skip
        values = {"entry": entry(STATES[1]), "card": entry(STATES[1]).card, "fields": typed}
        yield "preview.html", {**base, **values, "changes": differences}
        yield "summary.html", {**base, "chart": chart}
        yield "history.html", {**base, "query": query, "number": 2, "letters": [summary(state) for state in STATES], "total": 500, "chart": chart}  # fmt: skip
        yield (
            "history.html",
            {**base, "query": query, "number": 2, "letters": [], "total": 0, "chart": None},
        )
        yield "agents.html", {**base, "authors": authors, "present": present, "error": ""}
        yield "agents.html", {**base, "authors": [], "present": {}, "error": "Cannot read it"}
        yield "health.html", {**base, "checks": checks}
        for part, shown in (
            ("thread.html", thread),
            ("thread.html", thread | {"error": "down"}),
            ("chain.html", {"head": 3, "faults": ["2026-11-15.json:3: changed"]}),
            ("chain.html", {"head": 3, "faults": []}),
            ("checks.html", {"checks": checks}),
        ):
            yield part, {**base, **shown}
            yield (
                "part.html",
                {**base, **shown, "part": Markup(part), "title": "Title", "back": "/history"},
            )
    for error in ("", "Wrong."):
        yield "sign_in.html", {"ticket": "t1", "needs_passphrase": bool(error), "error": error}
        yield "locked.html", {"action": "/unlock", "fields": {"next": "/"}, "error": error}
    yield "error.html", {"title": "Refused", "cause": "Because.", "remedy": "Do `this`."}
    yield "signed_out.html", {}
    yield "redirect.html", {"address": "http://127.0.0.1/in/t1"}


def shape(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return all elements with the names of their attributes, but for marks of hidden characters and code."""
    nodes = (node for node in parsed(text) if node.tag not in {"b", "code"})
    return [(node.tag, tuple(sorted(node.attrs))) for node in nodes]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_any_field_of_any_template_stays_text(text: str) -> None:
    calm = "x" * len(text)
    for name, values in pages():
        template = ENVIRONMENT.get_template(name)
        hostile = template.render(poisoned(values, text))
        assert shape(hostile) == shape(template.render(poisoned(values, calm))), name
        for node in parsed(hostile):
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
