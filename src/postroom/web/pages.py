"""What every page has around it: the bar, the queue, what a person should know; and the pages of the door."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from hashlib import sha256
from importlib.resources import files
from typing import Final

from postroom.core import life
from postroom.core.policy import Rules
from postroom.core.records import LetterSummary
from postroom.core.stamp import Stamp, elapsed
from postroom.desk.outbox import ORCHESTRATOR, WHO
from postroom.web.markup import NONE, Html, ago, foreign, html, left, many, prose

TYPES: Final = {
    "desk.css": "text/css; charset=utf-8",
    "desk.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
STATIC: Final = {name: (files("postroom.web") / "static" / name).read_bytes() for name in TYPES}
PAGE: Final = 50  # letters of a list on one page
MARKS: Final = ("calm", "look", "stop")  # the classes of a risk card's levels
_PLACES: Final = (("/", "Queue"), ("/history", "History"), ("/agents", "Agents"), ("/health", "Health"))  # fmt: skip
_KEYS: Final = (
    ("j, k", "the next letter, the one before"),
    ("a", "to the button that approves; Enter then does"),
    ("e", "edit"),
    ("r", "reject, with a reason"),
    ("v", "ask for another version"),
    ("u", "to the undo button, while a letter can be recalled"),
    ("/", "search the history"),
    ("?", "this list"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page is drawn for: who looks, under which rules, when, and what they should know."""

    person: str
    token: str
    rules: Rules
    zone: tzinfo
    now: Stamp
    waiting: int
    told: Sequence[tuple[str, str]] = ()  # a class and a sentence


def static(name: str) -> str:
    """Return the address of a file of ours, which changes with it."""
    return f"/static/{name}?{sha256(STATIC[name]).hexdigest()[:12]}"


_SHELL: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{style}">
<script src="{script}" defer></script>
{head}</head>
<body class="{kind}">
{body}
</body>
</html>
"""


def bare(title: str, body: Html, *, kind: str = "door", head: Html = NONE) -> Html:
    """Return a page without the desk around it."""
    return html(
        _SHELL,
        title=f"{title} · Postroom",
        icon=static("icon.svg"),
        style=static("desk.css"),
        script=static("desk.js"),
        head=head,
        kind=kind,
        body=body,
    )


def page(
    view: View, title: str, main: Html, *, place: str, queue: Html = NONE, head: Html = NONE
) -> Html:
    """Return a page of the desk: the bar, the queue at the left where there is one, and what it is about."""
    body = html(
        """<a class="skip" href="#main">To the content</a>
<header class="bar">
<a class="brand" href="/">Postroom</a>
<nav aria-label="Pages">{places}</nav>
<p class="mode {live}">{mode}</p>
<form class="out" method="post" action="/out">{token}<span class="me">{person}</span><button class="plain">Sign out</button></form>
</header>
<div id="told" class="told" role="group" aria-label="Messages">{told}</div>
<div class="{layout}">{queue}<main id="main" tabindex="-1">{main}</main></div>
<div id="toast" class="toast" role="status"></div>
{keys}""",
        places=_places(view, place),
        live="live" if view.rules.live else "rehearsal",
        mode=f"{'Live' if view.rules.live else 'Rehearsal'}, trust {view.rules.trust}",
        token=token(view),
        person=foreign(view.person),
        told=[notice(*one) for one in _said(view)],
        layout="two" if queue else "one",
        queue=queue,
        main=main,
        keys=_keys(),
    )
    title = f"({view.waiting}) {title}" if view.waiting else title
    return bare(
        title, body, kind=f"desk {'letter' if place == '/letter' else ''}".strip(), head=head
    )


def _places(view: View, place: str) -> list[Html]:
    rows = []
    for path, name in _PLACES:
        here = path == place or (path == "/" and place == "/letter")
        waits = f" {view.waiting}" if path == "/" and view.waiting else ""
        rows.append(
            html(
                '<a href="{path}"{here}>{name}{waits}</a>',
                path=path,
                here=Html(' aria-current="page"') if here else NONE,
                name=name,
                waits=html('<span class="count">{n}</span>', n=waits) if waits else NONE,
            )
        )
    return rows


def _said(view: View) -> list[tuple[str, str]]:
    said = list(view.told)
    if not view.rules.live:
        rehearses = f"Postroom rehearses ({view.rules.source}): nothing can be approved or sent. Set dry_run = false in your settings to go live."
        said.append(("note", rehearses))
    if not view.rules.required:
        said.append(("stop", "approvals.required = false: letters leave without a person."))
    return said


def notice(kind: str, sentence: str) -> Html:
    """Return a sentence that a person should see before all else."""
    return html('<p class="notice {kind}">{sentence}</p>', kind=kind, sentence=prose(sentence))


def _keys() -> Html:
    rows = [html("<tr><th scope=row><kbd>{key}</kbd></th><td>{does}</td></tr>", key=key, does=does) for key, does in _KEYS]  # fmt: skip
    return html(
        """<dialog id="keys" aria-labelledby="keys-title"><h2 id="keys-title">Keys</h2><table>{rows}</table>
<p><label><input type="checkbox" id="use-keys" checked> Use these keys</label></p>
<form method="dialog"><button autofocus>Close</button></form></dialog>
<footer class="foot"><button class="plain needs-script" id="show-keys" aria-haspopup="dialog">Keys <kbd>?</kbd></button></footer>""",
        rows=rows,
    )


def token(view: View) -> Html:
    """Return the field that every form of ours has."""
    return html('<input type="hidden" name="token" value="{token}">', token=view.token)


def hidden(fields: Mapping[str, str]) -> list[Html]:
    """Return fields that a form carries along."""
    return [
        html('<input type="hidden" name="{name}" value="{value}">', name=name, value=value)
        for name, value in fields.items()
    ]


# The queue


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits, newest first, a page of it; and what is on its way out."""

    unknown: Sequence[LetterSummary]
    failed: Sequence[LetterSummary]
    leaving: Sequence[LetterSummary]
    waiting: Sequence[LetterSummary]
    total: int
    number: int = 1
    rehearsed: bool = False


def queue(view: View, found: Queue, chosen: str = "") -> Html:
    """Return the list of what waits."""
    groups = [
        ("May or may not have been sent", found.unknown),
        ("Could not be sent", found.failed),
        ("Approved", found.leaving),
        ("Rehearsed: never sent" if found.rehearsed else "Waiting for you", found.waiting),
    ]
    drawn = [
        html(
            "<h2>{title}</h2><ul>{rows}</ul>",
            title=title,
            rows=[_row(view, line, chosen, found.number) for line in lines],
        )
        for title, lines in groups
        if lines
    ]
    if not drawn:
        drawn = [html('<p class="empty">Nothing waits. Letters that agents ask to send appear here by themselves.</p>')]  # fmt: skip
    return html(
        '<nav id="queue" class="queue" aria-label="Letters">{drawn}{pages}</nav>',
        drawn=drawn,
        pages=turns(found.number, found.total, "/?page={}"),
    )


def last(total: int) -> int:
    """Return the number of the last page of so many letters."""
    return max(1, -(-total // PAGE))


def turns(number: int, total: int, address: str) -> Html:
    """Return the links to the pages before and after this one."""
    most = last(total)
    if most == 1:
        return NONE
    links = [
        html('<a href="{to}" rel="{rel}">{name}</a>', to=address.format(to), rel=rel, name=name)
        for to, rel, name in ((number - 1, "prev", "Newer"), (number + 1, "next", "Older"))
        if 1 <= to <= most
    ]
    return html(
        '<p class="turns"><span>Page {number} of {last}</span> {links}</p>',
        number=number,
        last=most,
        links=Html(" ".join(links)),
    )


def _row(view: View, line: LetterSummary, chosen: str, number: int) -> Html:
    return html(
        '<li><a href="/letter/{id}{place}" class="{mark}"{here}><span class="whom">{whom}</span>{age}'
        '<span class="subject">{subject}</span><span class="about">{agent}{ends}</span>{risk}</a>{recall}</li>',
        id=line.id,
        place=f"?page={number}" if number > 1 else "",
        mark=MARKS[line.level],
        here=Html(' aria-current="true"') if line.id == chosen else NONE,
        whom=whom(line.recipients),
        age=ago(line.created, elapsed(line.created, view.now)),
        subject=foreign(cut(line.subject, 150) or "(no subject)"),
        agent=foreign(agent_name(line.agent)),
        ends=_ends(view, line.state),
        risk=_highest(line),
        recall=_recall(view, line),
    )


def whom(recipients: str) -> Html:
    """Return the first of those whom a letter goes to, and how many more there are."""
    first, *others = recipients.split(", ")
    more = html(' <span class="more">and {n} more</span>', n=len(others)) if others else NONE
    return html("{first}{more}", first=foreign(cut(first, 120)), more=more)


def _recall(view: View, line: LetterSummary) -> Html:
    """Return the button that recalls a letter which has not left yet."""
    if not isinstance(line.state, life.Approved):
        return NONE
    return html(
        '<form method="post" action="/letter/{id}/undo" class="recall">{token}<button aria-label="Undo the approval of {subject}">Undo</button></form>',
        id=line.id,
        token=token(view),
        subject=line.subject[:80] or "this letter",
    )


def _ends(view: View, state: life.State) -> Html:
    match state:
        case life.Pending(since=since):
            ends = view.rules.expiry_seconds - elapsed(since, view.now)
            return html(" · expires in {left}", left=left(ends))
        case life.Approved(held=held) if held:
            return html(" · held")
        case life.Approved():
            return html(" · {count}", count=countdown(view, state))
        case life.Sending():
            return html(" · being sent")
    return NONE


def countdown(view: View, state: life.Approved) -> Html:
    """Return the seconds until an approved letter leaves, which the page counts down."""
    waits = max(0.0, state.wait - elapsed(state.since, view.now))
    return html(
        'leaves in <span class="countdown" data-left="{left}">{shown}</span> s',
        left=f"{waits:.1f}",
        shown=f"{waits:.0f}",
    )


def _highest(line: LetterSummary) -> Html:
    if not line.warning:
        return NONE
    label = ("", "Worth a look: ", "Red: ")[line.level]
    return html(
        '<span class="risk {mark}"><span class="sr">{label}</span>{text}</span>',
        mark=MARKS[line.level],
        label=label,
        text=foreign(cut(line.warning, 110)),
    )


def cut(text: str, most: int) -> str:
    """Return a text as long as a list has room for."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def agent_name(name: str) -> str:
    """Return who wrote a letter, as a person says it."""
    return WHO.get(name) or ("Postroom's own draft" if name == ORCHESTRATOR else name)


def summary(found: Queue, chart: Html) -> Html:
    """Return what stands beside the queue while no letter is chosen."""
    first = next(iter((*found.unknown, *found.waiting)), None)
    begin = NONE
    if first:
        begin = html('<p><a class="button" href="/letter/{id}">Begin with the newest</a></p>', id=first.id)  # fmt: skip
    doubtful = len(found.unknown)
    said = "No letter waits" if not found.total else f"{many(found.total, 'letter')} {'waits' if found.total == 1 else 'wait'}"  # fmt: skip
    if doubtful:
        said = f"{many(doubtful, 'letter')} may or may not have been sent"
    if found.rehearsed:
        said = f"{many(found.total, 'letter')} rehearsed"
    return html(
        '<section class="summary"><h1>{said}</h1><p>Nothing leaves until you have approved that exact letter.</p>{begin}{chart}</section>',
        said=said,
        begin=begin,
        chart=chart,
    )


# The door


def sign_in(ticket: str, *, passphrase: bool, wrong: str = "") -> Html:
    """Return the page that an address which works once leads to."""
    field = NONE
    if passphrase:
        field = _passphrase()
    body = html(
        '<main class="card"><h1>Postroom</h1>{wrong}<form method="post" action="/in" class="enter{auto}">'
        '<input type="hidden" name="ticket" value="{ticket}">{field}<p><button class="main"{focus}>Open the desk</button></p></form>'
        "<p class=quiet>This address works once, in one browser.</p></main>",
        wrong=notice("stop", wrong) if wrong else NONE,
        auto="" if passphrase or wrong else " auto",
        ticket=ticket,
        field=field,
        focus=NONE if passphrase else Html(" autofocus"),
    )
    return bare("Sign in", body)


def _passphrase() -> Html:
    return html(
        '<p><label for="passphrase">Your passphrase</label>'
        '<input type="password" id="passphrase" name="passphrase" autocomplete="current-password" required autofocus></p>'
    )


def lock(action: str, fields: Mapping[str, str], *, wrong: str = "") -> Html:
    """Return the page that asks for the passphrase again, and then goes on with what was asked for."""
    body = html(
        '<main class="card"><h1>Locked</h1>{wrong}<p>Nobody did anything for a while. Nothing was lost: what you asked for goes on '
        'once you have given your passphrase.</p><form method="post" action="{action}">{fields}{field}'
        '<p><button class="main">Unlock</button></p></form></main>',
        wrong=notice("stop", wrong) if wrong else NONE,
        action=action,
        fields=hidden(fields),
        field=_passphrase(),
    )
    return bare("Locked", body)


def stranger() -> Html:
    """Return what somebody sees whom nobody has let in."""
    body = html(
        '<main class="card"><h1>Postroom</h1><p>This browser is not signed in.</p><p>Run <code>postroom desk</code> in a terminal: it '
        "prints an address that lets one browser in, once.</p></main>"
    )
    return bare("Not signed in", body)


def trouble(title: str, cause: str, remedy: str) -> Html:
    """Return a page that says what is amiss and what to do."""
    body = html(
        '<main class="card"><h1>{title}</h1><p>{cause}</p>{remedy}<p><a href="/">To the queue</a></p></main>',
        title=title,
        cause=prose(cause),
        remedy=html("<p><strong>{remedy}</strong></p>", remedy=prose(remedy)) if remedy else NONE,
    )
    return bare(title, body)
