"""A letter on its sheet: every recipient, the text as it will leave, what code found in it, and what may be done about it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Card, CardLine, ItemSource, Level
from postroom.core.letter import Enclosure, Letter
from postroom.core.message import Message
from postroom.core.records import Entry
from postroom.core.stamp import elapsed
from postroom.core.text import duration
from postroom.web.changes import MAX_SHOWN, changes
from postroom.web.markup import NONE, Html, foreign, html, left, many, moment, put, shown
from postroom.web.pages import MARKS, View, agent_name, countdown, notice, token

MAX_SOURCES: Final = 60
MAX_MAIL: Final = 20_000  # characters of each
MAX_MAILS: Final = 20  # of a conversation
_GONE: Final = "A mail that was sent cannot be called back; write to the same people to correct it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What is known of one letter."""

    entry: Entry
    history: Sequence[life.State]
    former: Letter | None = None  # as its agent wrote it, where a person changed it
    edited: str = ""  # how its note differs, where a person typed into it
    answered: bool = False  # whether a conversation can be shown
    replaced: str = ""  # the letter that stands in its place
    next: str = ""  # the one that waits for a word next


def sheet(view: View, found: Sheet) -> Html:
    """Return a letter with all that a person needs to decide."""
    entry, letter = found.entry, found.entry.letter
    return html(
        """<article class="sheet {state}" id="letter" data-letter="{id}" data-version="{version}" data-digest="{digest}" aria-labelledby="subject">
<header class="head">{postmark}<h1 id="subject">{subject}</h1>
<p class="state">{said}</p>{undo}
<dl class="envelope">{people}</dl></header>
{card}
{edited}{changed}
<section aria-label="The letter">{whole}<div class="text body" dir="auto">{text}</div></section>
{html}{files}{sources}{thread}
<section class="small"><h2>If it goes wrong</h2><p>{rollback}</p></section>
<section class="small"><h2>What happened so far</h2><ol class="history">{history}</ol>
<p class="digest">Letter {id}. An approval counts for this digest alone: <code>{digest}</code></p></section>
{actions}
</article>""",
        state=entry.kind,
        id=entry.id,
        version=entry.version,
        postmark=postmark(view, entry),
        subject=foreign(letter.subject or "(no subject)"),
        said=_said(view, found),
        undo=_undo(view, entry),
        people=_people(view, entry),
        card=card(entry.card),
        edited=_edited(found),
        changed=_changed(found),
        text=shown(letter.text[:MAX_SHOWN])
        if letter.text
        else html('<span class="quiet">(no text)</span>'),
        whole=_whole(letter),
        html=_html_part(letter),
        files=_files(entry),
        sources=_sources(entry.card.sources),
        thread=_thread(entry, answered=found.answered),
        rollback=_rollback(view, entry),
        history=_history(view, found.history),
        digest=entry.digest,
        actions=_actions(view, found),
    )


def _people(view: View, entry: Entry) -> Html:
    letter = entry.letter
    rows: list[tuple[str, Sequence[Address]]] = [("From", (letter.sender,)), ("To", letter.to)]
    rows += [("Cc", letter.cc), ("Bcc", letter.bcc), ("Reply-To", letter.reply_to)]
    drawn = [
        html(
            '<div class="{kind}"><dt>{name}</dt><dd>{who}</dd></div>',
            kind=name.lower(),
            name=name,
            who=[html('<span class="who">{who}</span>', who=foreign(str(one))) for one in who],
        )
        for name, who in rows
        if who
    ]
    drawn.append(
        html(
            "<div><dt>Agent</dt><dd>{agent}, {when}</dd></div>",
            agent=foreign(agent_name(entry.agent)),
            when=moment(entry.created, view.zone),
        )
    )
    return put(drawn)


def _said(view: View, found: Sheet) -> Html:
    """Return how the letter stands, in one sentence."""
    entry = found.entry
    match entry.state:
        case life.Pending(since=since):
            ends = view.rules.expiry_seconds - elapsed(since, view.now)
            return html("Waits for your word; expires in {left}.", left=left(ends))
        case life.Approved(held=held, wait=wait, since=since) if held:
            ends = wait - elapsed(since, view.now)
            again = html(" It is tried again in {left}.", left=left(ends)) if ends > 1 else NONE
            return html("Approved, and held: {held}.{again}", held=held.rstrip("."), again=again)
        case life.Approved() as state:
            return html("Approved; it {count}.", count=countdown(view, state))
        case life.Rejected() if found.replaced:
            return html('{said} <a href="/letter/{id}">Its next version</a>', said=_event(view, entry.state), id=found.replaced)  # fmt: skip
    return _event(view, entry.state)


def _event(view: View, state: life.State) -> Html:
    """Return a sentence on what a state says: what was done, by whose word, when."""

    def when(at: object) -> Html:
        return moment(at, view.zone) if isinstance(at, tuple) else NONE  # type: ignore[arg-type]

    match state:
        case life.Rehearsal(at=at):
            return html("Rehearsed {at}: it can never be sent.", at=when(at))
        case life.Pending(since=since):
            return html("Waits since {at}.", at=when(since))
        case life.Approved(verdict=verdict, held=held):
            text = (
                "Approved by {by} {at}"
                if verdict.by != "nobody"
                else "Needs no approval, by your settings, {at}"
            )
            said = html(text, by=foreign(verdict.by), at=when(verdict.at))
            return html("{said}; held: {held}.", said=said, held=held.rstrip(".")) if held else html("{said}.", said=said)  # fmt: skip
        case life.Sending(at=at):
            return html("Being sent since {at}.", at=when(at))
        case life.Sent(at=at, refused=refused, how=how):
            but = html(", but not to {who}", who=foreign(", ".join(refused))) if refused else NONE
            added = f" ({how})" if how != "accepted" else ""
            return html("Sent {at}{but}{how}.", at=when(at), but=but, how=added)
        case life.Rejected(at=at, by=by, reason=reason, revise=revise):
            text = (
                "Sent back for another version by {by} {at}" if revise else "Rejected by {by} {at}"
            )
            said = html(text, by=foreign(by), at=when(at))
            return html("{said}: {reason}", said=said, reason=foreign(reason)) if reason else html("{said}.", said=said)  # fmt: skip
        case life.Withdrawn(at=at):
            return html("Withdrawn by its agent {at}.", at=when(at))
        case life.Expired(at=at):
            return html("Expired {at} without a verdict.", at=when(at))
        case life.Failed(at=at, reason=reason):
            return html("Cannot be sent: {reason} ({at}).", reason=reason.rstrip("."), at=when(at))
        case life.Unknown(at=at, why=why):
            return html("It may or may not have been sent ({why}), {at}. Look into the mailbox's Sent folder, then say what you found.", why=why, at=when(at))  # fmt: skip


def _history(view: View, states: Sequence[life.State]) -> list[Html]:
    """Return what happened to a letter, step by step."""
    rows, before = list[Html](), None
    for state in states:
        match before, state:
            case (None, life.Pending(since=since)):
                said = html("Asked for {at}.", at=moment(since, view.zone))
            case (life.Pending(), life.Pending()):
                said = html("Changed, and frozen anew.")
            case (life.Approved(), life.Pending(since=since)):
                said = html("The approval was taken back {at}.", at=moment(since, view.zone))
            case (_, life.Pending(since=since)):
                said = html("Put back into the queue {at}.", at=moment(since, view.zone))
            case _:
                said = _event(view, state)
        rows.append(html("<li>{said}</li>", said=said))
        before = state
    return rows


def _undo(view: View, entry: Entry) -> Html:
    if not isinstance(entry.state, life.Approved):
        return NONE
    return _form(view, entry, "undo", html('<button class="main" id="undo">Undo</button>'))


def card(found: Card) -> Html:
    """Return the risk card: quiet, unless a line is red; facts stand below the warnings."""
    none = html("<p>Nothing unusual was found.</p>")
    facts = html("<h3>Facts</h3><ul>{rows}</ul>", rows=[_line(one) for one in found.facts])
    return html(
        '<section class="card-lines {mark}"><h2>Risk</h2>{warnings}{facts}</section>',
        mark=MARKS[found.level],
        warnings=html("<ul>{rows}</ul>", rows=[_line(one) for one in found.warnings])
        if found.warnings
        else none,
        facts=facts if found.facts else NONE,
    )


def _line(found: CardLine) -> Html:
    label = {Level.LOOK: "Look", Level.STOP: "Red"}.get(found.level, "")
    return html(
        '<li class="{mark}">{label}{text}</li>',
        mark=MARKS[found.level],
        label=html("<strong>{label}</strong> ", label=label) if label else NONE,
        text=foreign(found.text),
    )


def _edited(found: Sheet) -> Html:
    if not found.edited:
        return NONE
    return html(
        '<section class="notice stop"><h2>Its note in the vault was edited, and says something else</h2><pre class="text">{how}</pre>'
        "<p>It cannot be approved like this: <code>postroom edit {id} --from-note</code> takes the note's text, or put the note back.</p></section>",
        how=shown(found.edited),
        id=found.entry.id,
    )


def _changed(found: Sheet) -> Html:
    if found.former is None:
        return NONE
    what = changes(found.former, found.entry.letter)
    if not what:
        return NONE
    return html('<section class="changes"><h2>What was changed</h2><dl>{what}</dl></section>', what=what)  # fmt: skip


def _whole(letter: Letter) -> Html:
    if len(letter.text) <= MAX_SHOWN:
        return NONE
    return html(
        '<p class="notice stop">Only the first {shown:} of {all:} characters are shown here. '
        '<a href="/letter/{id}/text">The whole text</a></p>',
        shown=f"{MAX_SHOWN:,}", all=f"{len(letter.text):,}", id=letter.id,
    )  # fmt: skip


def _html_part(letter: Letter) -> Html:
    if not letter.html:
        return NONE
    return html(
        '<section><h2>Also as HTML</h2><p>{about} <a href="/letter/{id}/source">Its source</a></p></section>',
        about=letter.about_html,
        id=letter.id,
    )


def _files(entry: Entry) -> Html:
    letter = entry.letter
    if not letter.attachments:
        return NONE
    rows = [_file(entry, at, file) for at, file in enumerate(letter.attachments)]
    return html(
        '<section><h2>{many}</h2><div class="wide" tabindex="0" role="region" aria-label="Table"><table><thead><tr><th scope="col">File</th><th scope="col">Type</th><th scope="col">Size</th>'
        '<th scope="col">From</th><th scope="col">SHA-256</th></tr></thead><tbody>{rows}</tbody></table></div></section>',
        many=many(len(rows), "attachment"),
        rows=rows,
    )


def _file(entry: Entry, at: int, file: Enclosure) -> Html:
    return html(
        '<tr><td><a href="/letter/{id}/file/{at}">{name}</a></td><td>{type}</td><td class="number">{size}</td><td>{origin}</td>'
        "<td><code>{sha}</code></td></tr>",
        id=entry.id,
        at=at,
        name=foreign(file.name),
        type=file.type,
        size=f"{len(file.content):,} bytes",
        origin=f"the {entry.origins[at] if at < len(entry.origins) else 'agent'}",
        sha=hashlib.sha256(file.content).hexdigest(),
    )


def _sources(found: Sequence[ItemSource]) -> Html:
    if not found:
        return NONE
    rows = [
        html(
            "<tr><td>{kind}</td><td>{what}</td><td>{where}</td></tr>",
            kind=one.kind,
            what=foreign(one.what[:300]),
            where=foreign(one.where) if one.where else "no mail on record",
        )
        for one in found[:MAX_SOURCES]
    ]
    more = len(found) - MAX_SOURCES
    return html(
        '<section><h2>Where its recipients and links came from</h2><div class="wide" tabindex="0" role="region" aria-label="Table"><table class="sources"><thead><tr><th scope="col">What</th>'
        '<th scope="col">Where it leads</th><th scope="col">Which mails showed it</th></tr></thead><tbody>{rows}</tbody></table></div>{more}</section>',
        rows=rows,
        more=html("<p>{more} more are not shown.</p>", more=more) if more > 0 else NONE,
    )


def _thread(entry: Entry, *, answered: bool) -> Html:
    if not answered:
        return NONE
    return html(
        '<section><h2>What it answers</h2><div data-load="/letter/{id}/thread" aria-live="polite">'
        '<p class="quiet"><a href="/letter/{id}/thread">Show the conversation</a></p></div></section>',
        id=entry.id,
    )


def thread(view: View, messages: Sequence[Message], answered: str) -> Html:
    """Return a conversation, newest mail first; the one that is answered stands open."""
    newest = list(reversed(messages))[:MAX_MAILS]
    rows = []
    for message in newest:
        mail = message.mail
        answers = mail.message_id == answered or len(messages) == 1
        rows.append(
            html(
                '<details{open}><summary>{who}, {when}{mark}</summary><div class="text mail" dir="auto" tabindex="0" role="region" aria-label="What it says">{text}</div>{more}</details>',
                open=Html(" open") if answers else NONE,
                who=foreign(str(mail.sender) if mail.sender else "nobody named"),
                when=moment(float(message.date), view.zone),
                mark=html(" <strong>is answered</strong>") if answers else NONE,
                text=shown(mail.text[:MAX_MAIL] or "(no text)"),
                more=html('<p class="quiet">Only the first {n} characters.</p>', n=f"{MAX_MAIL:,}")
                if len(mail.text) > MAX_MAIL
                else NONE,
            )
        )
    if len(messages) > len(newest):
        rows.append(html('<p class="quiet">{n} older mails are not shown.</p>', n=len(messages) - len(newest)))  # fmt: skip
    return html('<div class="thread">{rows}</div>', rows=rows)


def _rollback(view: View, entry: Entry) -> str:
    if isinstance(entry.state, life.Sent):
        return _GONE
    if isinstance(entry.state, life.Unknown):
        return "It is not sent again by itself. If it was not sent, it waits for your approval once more."
    if entry.kind in life.OPEN:
        window = view.rules.undo_seconds
        waits = f"After approval it waits {duration(window)}, in which you can undo it here." if window else "It leaves at once after approval."  # fmt: skip
        return f"{waits} {_GONE}"
    return "Nothing was sent."


# What may be done


def _actions(view: View, found: Sheet) -> Html:
    entry = found.entry
    match entry.state:
        case life.Pending() if not found.edited:
            drawn = [
                _approve(view, entry),
                _edit(entry),
                _reject(view, entry),
                _revise(view, entry),
            ]
        case life.Pending():
            drawn = [_reject(view, entry)]
        case life.Unknown():
            drawn = [
                _form(view, entry, "resolve", html('<input type="hidden" name="sent" value="yes"><button class="main">It was sent</button>')),
                _form(view, entry, "resolve", html('<input type="hidden" name="sent" value="no"><button>It was not sent</button>')),
            ]  # fmt: skip
        case life.Rejected() | life.Withdrawn() | life.Expired() | life.Failed():
            drawn = [_form(view, entry, "reopen", html("<button>Put it back into the queue</button>"))]  # fmt: skip
        case _:
            drawn = []
    if found.next and not isinstance(entry.state, life.Pending):
        drawn.append(html('<a class="button" href="/letter/{id}">Next letter</a>', id=found.next))
    if not drawn:
        return NONE
    return html('<footer class="actions" aria-label="What to do">{drawn}</footer>', drawn=drawn)


def _form(view: View, entry: Entry, verb: str, inside: Html, kind: str = "") -> Html:
    return html(
        '<form method="post" action="/letter/{id}/{verb}" class="{kind}">{token}<input type="hidden" name="digest" value="{digest}"><input type="hidden" name="state" value="{state}">{inside}</form>',
        id=entry.id,
        verb=verb,
        kind=kind or verb,
        token=token(view),
        digest=entry.digest,
        state=entry.kind,
        inside=inside,
    )


def _approve(view: View, entry: Entry) -> Html:
    if not view.rules.live:
        return html('<p class="quiet">Nothing can be approved while Postroom rehearses.</p>')
    return _form(view, entry, "approve", html('{seen}<button class="main" id="approve">Approve and send</button>', seen=_seen(entry.card)))  # fmt: skip


def _seen(found: Card) -> Html:
    """Return what a person ticks where lines are red."""
    red = sum(line.level == Level.STOP for line in found.lines)
    if not red:
        return NONE
    return html(
        '<label class="seen"><input type="checkbox" name="seen" value="yes" required> I have read the {lines}</label>',
        lines="red line" if red == 1 else f"{red} red lines",
    )


def _edit(entry: Entry) -> Html:
    return html('<a class="button" id="edit" href="/letter/{id}/edit">Edit</a>', id=entry.id)


def _reject(view: View, entry: Entry) -> Html:
    return _word(view, entry, "reject", "Reject", "Reason, which the agent sees", required=False)


def _revise(view: View, entry: Entry) -> Html:
    return _word(view, entry, "revise", "Another version", "What should be different? The agent sees it.", required=True)  # fmt: skip


def _word(view: View, entry: Entry, verb: str, title: str, asks: str, *, required: bool) -> Html:
    inside = html(
        '<label for="{verb}-word">{asks}</label><textarea id="{verb}-word" name="reason" rows="3" maxlength="2000"{required}></textarea>'
        '<button class="main">{does}</button>',
        verb=verb,
        asks=asks,
        required=Html(" required") if required else NONE,
        does="Ask for another version" if required else "Reject this letter",
    )
    return html(
        '<details id="{verb}" class="word" name="word"><summary>{title}…</summary>{form}</details>',
        verb=verb,
        title=title,
        form=_form(view, entry, verb, inside, "stack"),
    )


def edit(view: View, entry: Entry, fields: dict[str, str], wrong: str = "") -> Html:
    """Return the form in which a person changes a letter."""
    people = [
        html(
            '<p><label for="{key}">{name}</label><input id="{key}" name="{key}" value="{value}" autocomplete="off" spellcheck="false"{hint}></p>',
            key=key, name=name, value=fields[key],
            hint=NONE if key == "subject" else Html(' placeholder="separated by commas"'),
        )
        for key, name in (("to", "To"), ("cc", "Cc"), ("bcc", "Bcc"), ("subject", "Subject"))
    ]  # fmt: skip
    goes = html('<p class="quiet">The HTML part goes if you change the text: it would still say what the agent wrote.</p>') if entry.letter.html else NONE  # fmt: skip
    inside = html(
        '{people}<p><label for="text">Text</label><textarea id="text" name="text" rows="18" dir="auto">\n{text}</textarea></p>{goes}'
        '<p class="row"><button class="main">Look at the difference</button><a class="button" href="/letter/{id}">Leave it as it is</a></p>',
        people=people,
        text=fields["text"],
        goes=goes,
        id=entry.id,
    )
    return html(
        '<article class="sheet edit" data-letter="{id}" data-version="{version}"><h1>Edit</h1>{wrong}{form}</article>',
        id=entry.id,
        version=entry.version,
        wrong=notice("stop", wrong) if wrong else NONE,
        form=_form(view, entry, "preview", inside, "stack guard"),
    )


def preview(view: View, entry: Entry, letter: Letter, found: Card, fields: dict[str, str]) -> Html:
    """Return what an edit changes, with its new risk card, before anybody approves it."""
    from postroom.web.pages import hidden

    carried = put(hidden(fields | {"becomes": letter.digest}))
    buttons = html('<button class="main" id="approve" name="then" value="approve">Approve and send this</button>')  # fmt: skip
    seen = _seen(found)
    if not view.rules.live:
        buttons, seen = NONE, NONE
    return html(
        """<article class="sheet edit" data-letter="{id}" data-version="{version}"><h1>What you changed</h1>
<section class="changes"><dl>{what}</dl></section>
{card}
<section aria-label="The letter as it will be sent"><h2>The letter as it will be sent</h2><dl class="envelope">{people}</dl>
<p class="subject">{subject}</p>{whole}<div class="text body" dir="auto">{text}</div>{stays}{files}</section>
<footer class="actions">{confirm}{again}</footer></article>""",
        id=entry.id,
        version=entry.version,
        what=changes(entry.letter, letter),
        card=card(found),
        people=_people(view, _as(entry, letter)),
        subject=foreign(letter.subject or "(no subject)"),
        text=shown(letter.text[:MAX_SHOWN]),
        whole=notice("stop", f"Only the first {MAX_SHOWN:,} of {len(letter.text):,} characters are shown here.")
        if len(letter.text) > MAX_SHOWN
        else NONE,
        stays=notice("note", "Its HTML part stays as it is.") if letter.html else NONE,
        files=_files(_as(entry, letter)),
        confirm=_form(view, entry, "change", html('{carried}{seen}{buttons}<button name="then" value="wait" formnovalidate>Keep it, and let it wait</button>', carried=carried, seen=seen, buttons=buttons), "row"),
        again=_form(view, entry, "edit", html("{carried}<button>Go on editing</button>", carried=carried)),
    )  # fmt: skip


def _as(entry: Entry, letter: Letter) -> Entry:
    from dataclasses import replace

    return replace(entry, letter=letter)


# The postmark


def postmark(view: View, entry: Entry) -> Html:
    """Return the mark that an approved letter carries: the day, and whose word it was."""
    verdict = getattr(entry.state, "verdict", None)
    if verdict is None or verdict.by == "nobody":
        return NONE
    day = datetime.fromtimestamp(verdict.at.wall, view.zone)
    name = verdict.by if len(verdict.by) <= 16 else f"{verdict.by[:15]}…"
    return html(
        """<svg class="postmark" viewBox="0 0 210 110" role="img" aria-label="Approved by {by} on {long}">
<g fill="none" stroke="currentColor" stroke-width="2"><circle cx="55" cy="55" r="48"/><circle cx="55" cy="55" r="42" stroke-width="1"/>
<path d="M108 36q12-9 24 0t24 0 24 0 24 0M108 50q12-9 24 0t24 0 24 0 24 0M108 64q12-9 24 0t24 0 24 0 24 0M108 78q12-9 24 0t24 0 24 0 24 0"/></g>
<g fill="currentColor" text-anchor="middle"><text x="55" y="32" font-size="10" letter-spacing="1">POSTROOM</text>
<text x="55" y="53" font-size="17" font-weight="700">{day}</text><text x="55" y="68" font-size="11">{year}</text>
<text x="55" y="84" font-size="{size}">{name}</text></g></svg>""",
        by=verdict.by,
        long=f"{day.day} {day:%B %Y}",
        day=f"{day.day} {day:%b}".upper(),
        year=f"{day:%Y}",
        size=10 if len(name) <= 10 else 8,
        name=name,
    )
