"""What each address of the desk does: it reads what it was given, calls the desk, and draws what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from postroom.core import life
from postroom.core.address import Address
from postroom.core.card import Level
from postroom.core.errors import Conflict, Denied, Invalid, Limited, NotFound, PostroomError
from postroom.core.letter import Letter
from postroom.core.records import DAY, Entry, LetterSummary
from postroom.core.stamp import elapsed
from postroom.desk.compose import settled
from postroom.services.correspondence import Agent
from postroom.web import pages, records
from postroom.web import sheet as sheets
from postroom.web.markup import NONE, Html, html
from postroom.web.pages import Queue, View
from postroom.web.records import Asked
from postroom.web.request import Form, Post, Setup, page, status_of
from postroom.web.request import to as sent_to

FAILED_SHOWN: Final = 72 * 3600.0  # seconds that a letter which failed stands in the queue
_CLOSED: Final = {"rejected", "withdrawn", "expired", "failed"}
_OPEN, _GOING = {"pending", "approved", "sending"}, {"approved", "sending", "sent"}
DONE: Final = {  # by what was done: where the letter was, where it is then, and what is said
    "approve": (_OPEN, _GOING, "Approved."),
    "reject": ({"pending", "approved"}, {"rejected"}, "Rejected. The agent is told."),
    "revise": ({"pending", "approved"}, {"rejected"}, "Sent back. The agent is told."),
    "undo": ({"approved"}, {"pending"}, "Recalled. Nothing was sent."),
    "reopen": (_CLOSED, {"pending"}, "It waits for you again."),
    "resolve": ({"unknown"}, {"pending", "sent"}, "Noted."),
    "change": ({"pending", "approved"}, {"pending"}, "Your change is kept; the letter waits."),
    "changed": (_OPEN, _GOING, "Changed and approved."),
}
FIELDS: Final = ("to", "cc", "bcc", "subject", "text")


class Counter:
    """What each address does."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._desk = setup.desk
        self._door = setup.door

    def _view(self, post: Post, *told: tuple[str, str]) -> View:
        clerk = self._setup.clerk
        # What a page fetches for itself is not read yet.
        said = [("note", sentence) for sentence in clerk.told(keep=post.by_itself)]
        if clerk.trouble:
            said.append(("stop", f"Nothing is sent at the moment: {clerk.trouble}"))
        try:
            paused = self._desk.paused()
        except PostroomError as why:
            paused = ""
            said.append(("stop", why.message_with_remedy))
        if paused:
            said.append(("note", f"Sending and sorting of mail is paused by {paused} in the vault. Delete that file to go on."))  # fmt: skip
        return View(
            person=post.visitor.person,
            token=post.visitor.token,
            rules=self._desk.rules,
            zone=self._setup.zone,
            now=self._desk.clock(),
            waiting=self._desk.ledger.count((), "pending", "unknown"),
            told=(*told, *said),
        )

    # The queue and one letter

    def queue(self, post: Post) -> Response:
        view = self._view(post)
        found = self._queue(post)
        main = pages.summary(found, self._chart())
        return page(pages.page(view, "Queue", main, place="/", queue=pages.queue(view, found)))

    def _queue(self, post: Post) -> Queue:
        ledger, number = self._desk.ledger, _number(post.request.query_params.get("page", ""))
        live = self._desk.rules.live
        state = "pending" if live or ledger.count((), "pending") else "rehearsal"
        total = ledger.count((), state)
        number = min(number, pages.last(total))
        skip = (number - 1) * pages.PAGE
        waiting = ledger.lines(state, newest=pages.PAGE, skip=skip)
        return Queue(
            ledger.lines("unknown")[::-1],
            self._failed(),
            ledger.lines("approved", "sending", newest=pages.PAGE)[::-1],
            waiting[::-1],
            total,
            number,
            rehearsed=state == "rehearsal",
        )

    def _failed(self) -> list[LetterSummary]:
        """Return what could not be sent lately: whoever approved it may believe that it was."""
        now, lines = self._desk.clock(), self._desk.ledger.lines("failed", newest=20)[::-1]
        return [
            line
            for line in lines
            if isinstance(line.state, life.Failed) and elapsed(line.state.at, now) < FAILED_SHOWN
        ]

    def letter(self, post: Post) -> Response:
        with suppress(PostroomError):  # which every page says
            self._look()
        was, now, said = DONE.get(post.request.query_params.get("done", ""), ((), (), ""))
        kinds = [life.name(state) for state in self._desk.ledger.history(post.id)[-2:]]
        # A link must not make the page say what was not done.
        so = len(kinds) == 2 and kinds[0] in was and kinds[1] in now
        return self._letter(post, *([("good", said)] if so else []))

    def _look(self) -> None:
        """Take in what was done to the notes; what a person should know is said."""
        self._setup.clerk.hear(self._desk.reconcile())

    def _letter(self, post: Post, *told: tuple[str, str], status: int = 200) -> Response:
        entry = self._desk.ledger.entry(post.id)
        view = self._view(post, *told)
        found, head = self._queue(post), NONE
        after = next((line.id for line in found.waiting if line.id != entry.id), "")
        if isinstance(entry.state, life.Sending) or (isinstance(entry.state, life.Approved) and not entry.state.held):  # fmt: skip
            # Without scripts, a letter that is about to leave is looked at again.
            again = '<noscript><meta http-equiv="refresh" content="2; url=/letter/{id}?again=1"></noscript>\n'
            head = html(again, id=entry.id)
        main = sheets.sheet(view, self._sheet(entry, after))
        title = entry.letter.subject or "(no subject)"
        queue = pages.queue(view, found, entry.id)
        return page(pages.page(view, title, main, place="/letter", queue=queue, head=head), status)

    def _sheet(self, entry: Entry, after: str) -> sheets.Sheet:
        desk, letter = self._desk, entry.letter
        return sheets.Sheet(
            entry=entry,
            history=desk.ledger.history(entry.id),
            former=desk.ledger.former(entry.id) if entry.version > 1 else None,
            edited=desk.edited(entry) if isinstance(entry.state, life.Pending) else "",
            answered=bool(letter.thread and letter.in_reply_to),
            replaced=desk.replaced_by(entry),
            next=after,
        )

    def source(self, post: Post) -> Response:
        return _plain(self._desk.ledger.entry(post.id).letter.html)

    def text(self, post: Post) -> Response:
        return _plain(self._desk.ledger.entry(post.id).letter.text)

    def file(self, post: Post) -> Response:
        files = self._desk.ledger.entry(post.id).letter.attachments
        at = post.request.path_params["at"]
        if at >= len(files):
            raise NotFound(f"The letter {post.id} has no such attachment")
        # RFC 6266 section 4.3, and never by a type that a browser would show.
        named = {"content-disposition": f"attachment; filename*=UTF-8''{quote(files[at].name)}"}
        return Response(files[at].content, media_type="application/octet-stream", headers=named)

    def thread(self, post: Post) -> Response:
        letter = self._desk.ledger.entry(post.id).letter
        view = self._view(post)
        try:
            found = self._setup.services.mailbox.box(letter.account).thread(letter.thread).messages
            drawn = sheets.thread(view, found, letter.in_reply_to)
        except PostroomError as why:
            drawn = html('<p class="notice note">The conversation cannot be shown: {why}</p>', why=why.message_with_remedy)  # fmt: skip
        return self._piece(post, view, "Conversation", drawn, f"/letter/{letter.id}")

    def _piece(self, post: Post, view: View, title: str, drawn: Html, back: str) -> Response:
        """Return a part of a page to the page that asked for it; to a person, as one of its own."""
        if post.by_itself:
            return page(drawn)
        main = html('<section class="records"><h1>{title}</h1>{drawn}<p><a href="{back}">Back</a></p></section>', title=title, drawn=drawn, back=back)  # fmt: skip
        return page(pages.page(view, title, main, place=""))

    # Verdicts

    def _decide(
        self, post: Post, act: Callable[[], Entry], *, typed: bool = False, done: str = ""
    ) -> Response:
        """Carry out a verdict; whoever comes second is told what the first decided, and keeps what they typed."""
        self._look()
        try:
            now = self._desk.ledger.entry(post.id)
            if post.form.get("state", now.kind) != now.kind:  # what they saw has changed
                raise life.refuse(post.id, now.state, "decided again")
            act()
        except (Conflict, Denied, Invalid, Limited) as refused:
            self._setup.live.tell()
            waits = isinstance(self._desk.ledger.entry(post.id).state, life.Pending)
            if typed and waits and isinstance(refused, Conflict):
                return self.edit(
                    post, f"{refused.message}. This is what you typed: look at it again.", 409
                )
            said = f"Not done. {_why(refused, self._desk.ledger.entry(post.id).state)}"
            return self._letter(post, ("stop", said), status=status_of(refused))
        self._setup.live.tell()
        self._setup.clerk.wake()
        done = done or post.request.url.path.rpartition("/")[2]
        return sent_to(f"/letter/{post.id}?done={done}")

    def approve(self, post: Post) -> Response:
        _refuse_unread(self._desk.ledger.entry(post.id).card.level, post.form)
        return self._decide(post, lambda: self._approved(post, post.digest))

    def _approved(self, post: Post, digest: str) -> Entry:
        by, proof = post.visitor.person, self._door.proof(post.visitor)
        return self._desk.approve(post.id, by=by, digest=digest, proof=proof, via="page")

    def reject(self, post: Post) -> Response:
        return self._reject(post, revise=False)

    def revise(self, post: Post) -> Response:
        if not post.form.get("reason", "").strip():
            raise Invalid("What should be different is not said", remedy="Go back and write it: the agent reads it.")  # fmt: skip
        return self._reject(post, revise=True)

    def _reject(self, post: Post, *, revise: bool) -> Response:
        by, reason = post.visitor.person, settled(post.form.get("reason", "")).strip()
        return self._decide(
            post, lambda: self._desk.reject(post.id, by=by, reason=reason, revise=revise)
        )

    def undo(self, post: Post) -> Response:
        return self._decide(post, lambda: self._desk.recall(post.id, by=post.visitor.person))

    def reopen(self, post: Post) -> Response:
        return self._decide(post, lambda: self._desk.reopen(post.id, by=post.visitor.person))

    def resolve(self, post: Post) -> Response:
        said = post.form.get("sent")
        if said not in {"yes", "no"}:
            raise Invalid("Was it sent or not?", remedy="Go back and choose one.")
        by, proof = post.visitor.person, self._door.proof(post.visitor)
        return self._decide(
            post, lambda: self._desk.resolve(post.id, by=by, sent=said == "yes", proof=proof)
        )

    # Editing

    def edit(self, post: Post, wrong: str = "", status: int = 400) -> Response:
        self._look()
        entry = self._desk.ledger.entry(post.id)
        if not isinstance(entry.state, life.Pending):
            why = _why(life.refuse(entry.id, entry.state, "edited"), entry.state)
            return self._letter(post, ("stop", f"Not edited. {why}"), status=409)
        self._desk.refuse_edited(entry)
        letter = entry.letter
        fields = {name: ", ".join(map(str, getattr(letter, name))) for name in ("to", "cc", "bcc")}
        fields |= {"subject": letter.subject, "text": letter.text}
        fields |= {name: post.form[name] for name in FIELDS if name in post.form}
        view = self._view(post)
        main = sheets.edit(view, entry, fields, wrong)
        return self._beside_queue(post, view, "Edit", main, status if wrong else 200)

    def _beside_queue(
        self, post: Post, view: View, title: str, main: Html, status: int = 200
    ) -> Response:
        queue = pages.queue(view, self._queue(post), post.id)
        return page(pages.page(view, title, main, place="/letter", queue=queue), status)

    def preview(self, post: Post) -> Response:
        entry = self._desk.ledger.entry(post.id)
        if post.digest != entry.digest or not isinstance(entry.state, life.Pending):
            why = "The letter was changed meanwhile. This is what you typed: look at it again."
            return self.edit(post, why, 409)
        try:
            letter, card = self._desk.outbox.edited(entry, _reworded(entry.letter, post.form))
        except (Invalid, Denied) as wrong:
            return self.edit(post, wrong.message_with_remedy)
        if letter == entry.letter:
            return self.edit(post, "Nothing was changed yet.")
        view = self._view(post)
        fields = {name: post.form.get(name, "") for name in FIELDS}
        main = sheets.preview(view, entry, letter, card, fields)
        return self._beside_queue(post, view, "What you changed", main)

    def change(self, post: Post) -> Response:
        entry = self._desk.ledger.entry(post.id)
        approves = post.form.get("then") == "approve"

        def act() -> Entry:
            letter, card = self._desk.outbox.edited(entry, _reworded(entry.letter, post.form))
            if letter.digest != post.form.get("becomes"):
                raise Conflict("The letter is not what you saw", remedy="Edit it again.")
            if approves:
                self._desk.outbox.refuse_rehearsal()
                _refuse_unread(card.level, post.form)
            proof = self._door.proof(post.visitor)
            by = post.visitor.person
            changed = self._desk.edit(post.id, letter, proof=proof, was=post.digest, by=by)
            if not approves:
                return changed
            try:
                return self._approved(post, changed.digest)
            except PostroomError as why:
                why.message = f"Your change is kept, but not approved: {why.message}"
                raise

        return self._decide(post, act, typed=True, done="changed" if approves else "change")

    # The other pages

    def history(self, post: Post) -> Response:
        given = post.request.query_params
        state = given.get("state", "")
        asked = Asked(
            given.get("q", "")[:200],
            state if state in records.STATES else "",
            given.get("agent", "")[:100],
            _number(given.get("page", "")),
        )
        states = (asked.state,) if asked.state else tuple(s for s in records.CLOSED if s != "rehearsal")  # fmt: skip
        agent = asked.agent or None
        words = asked.query.split()[:10]
        if (
            agent or words
        ) and not asked.state:  # who looks for a letter may not know how it stands
            states = (*states, *life.OPEN)
        ledger = self._desk.ledger
        total = ledger.count(words, *states, agent=agent)
        asked = asked._replace(number=min(asked.number, pages.last(total)))
        skip = (asked.number - 1) * pages.PAGE
        lines = ledger.found(
            words, *states, agent=agent, newest=pages.PAGE, skip=skip, by_outcome=True
        )[::-1]
        view = self._view(post)
        main = records.history(view, asked, lines, total, self._chart())
        return page(pages.page(view, "History", main, place="/history"))

    def _chart(self) -> Html:
        now = datetime.fromtimestamp(self._desk.clock().wall, self._setup.zone)
        offset = now.utcoffset()
        seconds = int(offset.total_seconds()) if offset else 0
        since = now.timestamp() - records.CHART_DAYS * DAY
        return records.chart(self._desk.ledger.days(since, seconds), now.date())

    def chain(self, post: Post) -> Response:
        self._desk.publish()
        faults = [f"{fault.file}:{fault.line}: {fault.what}" for fault in self._desk.log.verify()]
        drawn = records.chain(self._desk.ledger.head(), faults)
        return self._piece(post, self._view(post), "The audit chain", drawn, "/history")

    def agents(self, post: Post) -> Response:
        present, why = list[tuple[Agent, int]](), ""
        try:
            present = self._setup.services.correspondence.present()
        except PostroomError as wrong:
            why = f"Agent mail cannot be looked at: {wrong.message_with_remedy}"
        view = self._view(post)
        main = records.agents(view, self._desk.ledger.tallies(), present, why)
        return page(pages.page(view, "Agents", main, place="/agents"))

    def health(self, post: Post) -> Response:
        view = self._view(post)
        main = records.health(self._setup.health())
        return page(pages.page(view, "Health", main, place="/health"))

    def mail_health(self, post: Post) -> Response:
        drawn = records.table(self._setup.mail_health())
        return self._piece(post, self._view(post), "Mail", drawn, "/health")


def _plain(text: str) -> Response:
    return Response(text, media_type="text/plain; charset=utf-8")


def _number(text: str) -> int:
    return int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1


def _why(refused: PostroomError, state: life.State) -> str:
    """Return what a person on the page is told: who was first, and no commands where there are buttons."""
    if not isinstance(refused, Conflict):
        return refused.message_with_remedy
    match state:
        case life.Rejected(by=by, reason=reason, revise=revise):
            did = "asked for another version" if revise else "rejected it"
            return f"{by} was first and {did}{f': {reason}' if reason else '.'}"
        case life.Approved(verdict=verdict) | life.Sending(verdict=verdict):
            return f"{verdict.by} was first and approved it."
        case life.Sent(verdict=verdict) if verdict:
            return f"{verdict.by} was first and approved it; it was sent."
    return refused.message


def _refuse_unread(level: Level, form: Form) -> None:
    if level == Level.STOP and form.get("seen") != "yes":
        raise Invalid("The letter has red lines", remedy="Go back, read them, and tick that you have.")  # fmt: skip


def _addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses that somebody typed, between commas or as other mail programs have it."""
    try:
        return Address.parse_list(text)
    except Invalid:
        if not set(text) & set(";\n"):
            raise
        return Address.parse_list(re.sub(r"[;\r\n]+", ",", text))


def _reworded(letter: Letter, form: Form) -> Letter:
    """Return the letter as a person has typed it."""
    to, cc, bcc = (_addresses(form.get(name, "")) for name in ("to", "cc", "bcc"))
    return replace(
        letter,
        to=to,
        cc=cc,
        bcc=bcc,
        subject=form.get("subject", ""),
        text=settled(form.get("text", "")),
    )
