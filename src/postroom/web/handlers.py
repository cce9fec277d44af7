"""What each address of the page does: it reads the request, calls the desk, and renders the result."""

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
from postroom.core.message import Message
from postroom.core.records import DAY, Entry
from postroom.core.stamp import elapsed
from postroom.desk.compose import normalize_text
from postroom.web import views
from postroom.web.request import AppContext, Form, PageRequest, page, redirect, status_code
from postroom.web.views import HistoryQuery, Notice, PageFrame, QueueView, letter_changes

FAILED_SECONDS: Final = 72 * 3600.0  # for which the queue shows a letter that failed
MAX_MAILS: Final = 20  # of a conversation
FIELDS: Final = ("to", "cc", "bcc", "subject", "text")
_CLOSED: Final = {"rejected", "withdrawn", "expired", "failed"}
_UNDECIDED, _LEAVING = {"pending", "approved", "sending"}, {"approved", "sending", "sent"}
# By the name of an action: the states before and after it, and the sentence that confirms it.
CONFIRMATIONS: Final = {
    "approve": (_UNDECIDED, _LEAVING, "Approved."),
    "reject": ({"pending", "approved"}, {"rejected"}, "Rejected. The agent sees it."),
    "revise": ({"pending", "approved"}, {"rejected"}, "Sent back. The agent sees it."),
    "undo": ({"approved"}, {"pending"}, "Approval undone. Nothing was sent."),
    "reopen": (_CLOSED, {"pending"}, "Back in the queue."),
    "resolve": ({"unknown"}, {"pending", "sent"}, "Recorded."),
    "change": ({"pending", "approved"}, {"pending"}, "Saved. The letter is waiting for you."),
    "changed": (_UNDECIDED, _LEAVING, "Changed and approved."),
}


class Handlers:
    """The addresses of the page, one method each."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._desk = context.services.desk
        self._reader = self._desk.reader
        self._sessions = context.sessions

    # What every page has

    def _frame(
        self,
        request: PageRequest,
        title: str,
        place: str,
        *notices: Notice,
        queue: QueueView | None = None,
    ) -> PageFrame:
        """Return the frame of a page; `place` is the address of the tab that it belongs to."""
        dispatcher = self._context.dispatcher
        # A page that loads itself again has not been read: its notices are kept for the next one.
        current = [
            Notice("note", one) for one in dispatcher.take_notices(keep=request.is_automatic)
        ]
        if dispatcher.problem:
            current.append(Notice("stop", f"Nothing is being sent: {dispatcher.problem}"))
        try:
            if paused := self._desk.paused():
                pause = f"Sending and triage are paused by the file {paused} in your vault. Delete it to continue."
                current.append(Notice("note", pause))
        except PostroomError as error:
            current.append(Notice("stop", error.message_with_remedy))
        return PageFrame(
            title=title,
            place=place,
            person=request.session.person,
            token=request.session.token,
            rules=self._desk.rules,
            zone=self._context.zone,
            now=self._desk.clock(),
            waiting=self._reader.lists.count("pending", "unknown"),
            notices=(*notices, *current),
            queue=queue,
        )

    def _part(
        self, request: PageRequest, template: str, title: str, back: str, **values: object
    ) -> Response:
        """Return a part to the page whose script asked for it; to a person, as a page of its own."""
        frame = self._frame(request, title, "")
        if request.is_automatic:
            return page(template, frame=frame, **values)
        return page("part.html", frame=frame, part=template, back=back, **values)

    # The queue and one letter

    def queue(self, request: PageRequest) -> Response:
        frame = self._frame(request, "Queue", "/", queue=self._queue(request))
        return page("summary.html", frame=frame, chart=self._chart())

    def _queue(self, request: PageRequest, chosen: str = "") -> QueueView:
        lists = self._reader.lists
        is_live = self._desk.rules.live or lists.count("pending") > 0
        state = "pending" if is_live else "rehearsal"
        total = lists.count(state)
        number = min(_page_number(request), views.pages(total))
        skip, now = (number - 1) * views.PAGE_SIZE, self._desk.clock()
        # Whoever approved a letter may believe that it was sent: a failure is shown for a while.
        failed = [
            one
            for one in lists.summaries("failed", newest=20)[::-1]
            if isinstance(one.state, life.Failed) and elapsed(one.state.at, now) < FAILED_SECONDS
        ]
        return QueueView(
            unknown=lists.summaries("unknown")[::-1],
            failed=failed,
            approved=lists.summaries("approved", "sending", newest=views.PAGE_SIZE)[::-1],
            waiting=lists.summaries(state, newest=views.PAGE_SIZE, skip=skip)[::-1],
            total=total,
            number=number,
            rehearsed=not is_live,
            chosen=chosen,
        )

    def letter(self, request: PageRequest) -> Response:
        with suppress(PostroomError):  # which the frame of the page reports
            self._reconcile()
        action = request.http.query_params.get("done", "")
        before, after, sentence = CONFIRMATIONS.get(action, ((), (), ""))
        last_two = [life.name(state) for state in self._reader.history.states(request.id)[-2:]]
        # A link from elsewhere must not make the page confirm what was not done.
        is_done = len(last_two) == 2 and last_two[0] in before and last_two[1] in after
        return self._letter(request, *([Notice("good", sentence)] if is_done else []))

    def _reconcile(self) -> None:
        self._context.dispatcher.add_notices(self._desk.reconcile())

    def _letter(self, request: PageRequest, *notices: Notice, status: int = 200) -> Response:
        desk, entry = self._desk, self._reader.letters.get(request.id)
        letter, queue = entry.letter, self._queue(request, entry.id)
        original = self._reader.history.original(entry.id) if entry.is_edited else None
        difference = desk.note_difference(entry) if isinstance(entry.state, life.Pending) else ""
        title = letter.subject or "(no subject)"
        frame = self._frame(request, title, "/letter", *notices, queue=queue)
        return page(
            "letter.html",
            status,
            frame=frame,
            entry=entry,
            history=self._reader.history.states(entry.id),
            changes=letter_changes(original, letter) if original else [],
            note_difference=difference,
            # A letter whose note was edited cannot be approved before that is cleared up.
            offers=("reject",) if difference else life.offered(entry.state),
            has_thread=bool(letter.thread and letter.in_reply_to),
            replaced_by=desk.calls.replaced_by(entry),
        )

    def plain(self, request: PageRequest) -> Response:
        """Return the letter's text, or the source of its HTML part, as plain text."""
        letter = self._reader.letters.get(request.id).letter
        text = letter.html if request.action == "source" else letter.text
        return Response(text, media_type="text/plain; charset=utf-8")

    def file(self, request: PageRequest) -> Response:
        files = self._reader.letters.get(request.id).letter.attachments
        at = request.http.path_params["at"]
        if at >= len(files):
            raise NotFound(f"The letter {request.id} has no such attachment")
        # RFC 6266 section 4.3, and never with a type that a browser would show.
        named = {"content-disposition": f"attachment; filename*=UTF-8''{quote(files[at].name)}"}
        return Response(files[at].content, media_type="application/octet-stream", headers=named)

    def thread(self, request: PageRequest) -> Response:
        letter = self._reader.letters.get(request.id).letter
        messages, problem = list[Message](), ""
        try:
            thread = self._context.services.mailbox.box(letter.account).thread(letter.thread)
            messages = list(thread.messages)
        except PostroomError as error:
            problem = error.message_with_remedy
        return self._part(
            request,
            "thread.html",
            "Conversation",
            f"/letter/{letter.id}",
            messages=messages[: -MAX_MAILS - 1 : -1],  # the newest first
            total=len(messages),
            answered=letter.in_reply_to,
            error=problem,
        )

    # Verdicts

    def _decide(
        self,
        request: PageRequest,
        act: Callable[[], Entry],
        *,
        is_edit: bool = False,
        action: str = "",
    ) -> Response:
        """Carry out a verdict; if somebody else was first, show their decision and keep what was typed."""
        self._reconcile()
        try:
            entry = self._reader.letters.get(request.id)
            if request.form.get("state", entry.kind) != entry.kind:  # another state than was shown
                raise life.refuse(request.id, entry.state, "decided again")
            act()
        except (Conflict, Denied, Invalid, Limited) as error:
            self._context.feed.notify()
            state = self._reader.letters.get(request.id).state
            if is_edit and isinstance(state, life.Pending) and isinstance(error, Conflict):
                return self.edit(request, f"{error.message}. This is what you typed; check it again.", 409)  # fmt: skip
            notice = Notice("stop", f"Not done. {_explain(error, state)}")
            return self._letter(request, notice, status=status_code(error))
        self._context.feed.notify()
        self._context.dispatcher.wake()
        return redirect(f"/letter/{request.id}?done={action or request.action}")

    def approve(self, request: PageRequest) -> Response:
        _require_red_box(self._reader.letters.get(request.id).card.level, request.form)
        return self._decide(request, lambda: self._approve(request, request.digest))

    def _approve(self, request: PageRequest, digest: str) -> Entry:
        by, proof = request.session.person, self._sessions.proof(request.session)
        return self._desk.approve(
            request.id, by=by, digest=digest, proof=proof, via=life.Channel.PAGE
        )

    def decide(self, request: PageRequest) -> Response:
        """Carry out the event that the address names: reject, revise, undo, reopen or resolve."""
        event, form, session = request.action, request.form, request.session
        reason, sent = normalize_text(form.get("reason", "")).strip(), form.get("sent", "")
        if event == "revise" and not reason:
            raise Invalid("You did not say what should be different", remedy="Go back and write it: the agent reads it.")  # fmt: skip
        if event == "resolve" and sent not in {"yes", "no"}:
            raise Invalid("Was it sent or not?", remedy="Go back and choose one.")
        return self._decide(
            request,
            lambda: self._desk.decide(
                request.id,
                event,
                by=session.person,
                reason=reason,
                sent=sent == "yes",
                proof=self._sessions.proof(session),
            ),
        )

    # Editing

    def edit(self, request: PageRequest, problem: str = "", status: int = 400) -> Response:
        self._reconcile()
        entry = self._reader.letters.get(request.id)
        if not isinstance(entry.state, life.Pending):
            why = _explain(life.refuse(entry.id, entry.state, "edited"), entry.state)
            return self._letter(request, Notice("stop", f"Not edited. {why}"), status=409)
        self._desk.refuse_edited_note(entry)
        letter = entry.letter
        fields = {name: ", ".join(map(str, getattr(letter, name))) for name in ("to", "cc", "bcc")}
        fields |= {"subject": letter.subject, "text": letter.text}
        fields |= {name: request.form[name] for name in FIELDS if name in request.form}
        frame = self._frame(request, "Edit", "/letter", queue=self._queue(request, entry.id))
        return page("edit.html", status if problem else 200, frame=frame, entry=entry, fields=fields, error=problem)  # fmt: skip

    def preview(self, request: PageRequest) -> Response:
        entry = self._reader.letters.get(request.id)
        if request.digest != entry.digest or not isinstance(entry.state, life.Pending):
            why = "The letter was changed in the meantime. This is what you typed; check it again."
            return self.edit(request, why, 409)
        try:
            letter, card = self._desk.verdicts.preview_edit(entry, _typed_letter(entry.letter, request.form))  # fmt: skip
        except (Invalid, Denied) as error:
            return self.edit(request, error.message_with_remedy)
        if letter == entry.letter:
            return self.edit(request, "You have not changed anything yet.")
        fields = {name: request.form.get(name, "") for name in FIELDS}
        queue = self._queue(request, entry.id)
        return page(
            "preview.html",
            frame=self._frame(request, "Review your changes", "/letter", queue=queue),
            entry=replace(entry, letter=letter),
            card=card,
            changes=letter_changes(entry.letter, letter),
            fields=fields | {"becomes": letter.digest},
        )

    def change(self, request: PageRequest) -> Response:
        entry = self._reader.letters.get(request.id)
        approves = request.form.get("then") == "approve"

        def act() -> Entry:
            letter, card = self._desk.verdicts.preview_edit(entry, _typed_letter(entry.letter, request.form))  # fmt: skip
            if letter.digest != request.form.get("becomes"):
                raise Conflict("The letter is not what you saw", remedy="Edit it again.")
            if approves:
                self._desk.verdicts.refuse_rehearsal()
                _require_red_box(card.level, request.form)
            proof, by = self._sessions.proof(request.session), request.session.person
            changed = self._desk.edit(request.id, letter, proof=proof, was=request.digest, by=by)
            if not approves:
                return changed
            try:
                return self._approve(request, changed.digest)
            except PostroomError as error:
                error.message = f"Your change was saved, but not approved: {error.message}"
                raise

        action = "changed" if approves else "change"
        return self._decide(request, act, is_edit=True, action=action)

    # The other pages

    def history(self, request: PageRequest) -> Response:
        parameters = request.http.query_params
        state = parameters.get("state", "")
        query = HistoryQuery(
            parameters.get("q", "")[:200],
            state if state in views.OUTCOMES else "",
            parameters.get("agent", "")[:100],
            _page_number(request),
        )
        states = (query.state,) if query.state else life.CLOSED
        agent, words = query.agent or None, query.words.split()[:10]
        if (agent or words) and not query.state:  # whoever searches may not know the state
            states = (*states, *life.OPEN)
        lists = self._reader.lists
        total = lists.count(*states, words=words, agent=agent)
        query = query._replace(number=min(query.number, views.pages(total)))
        letters = lists.summaries(
            *states,
            words=words,
            agent=agent,
            newest=views.PAGE_SIZE,
            skip=(query.number - 1) * views.PAGE_SIZE,
            by_outcome=True,
        )[::-1]
        frame = self._frame(request, "History", "/history")
        return page("history.html", frame=frame, query=query, letters=letters, total=total, chart=self._chart())  # fmt: skip

    def _chart(self) -> views.Chart | None:
        now = datetime.fromtimestamp(self._desk.clock().wall, self._context.zone)
        offset = now.utcoffset()
        seconds = int(offset.total_seconds()) if offset else 0
        since = now.timestamp() - views.CHART_DAYS * DAY
        return views.chart(self._reader.lists.per_day(since, seconds), now.date())

    def chain(self, request: PageRequest) -> Response:
        self._desk.flush_log()
        faults = [f"{fault.file}:{fault.line}: {fault.what}" for fault in self._desk.log.verify()]
        head = self._reader.actions.head()
        return self._part(request, "chain.html", "Audit log", "/history", head=head, faults=faults)

    def agents(self, request: PageRequest) -> Response:
        present, problem = dict[str, tuple[str, int]](), ""
        try:
            for agent, unread in self._context.services.correspondence.present():
                present[agent.name] = (agent.status or "here", unread)
        except PostroomError as error:
            problem = f"Cannot read agent mail: {error.message_with_remedy}"
        frame, authors = self._frame(request, "Agents", "/agents"), self._reader.lists.agents()
        return page("agents.html", frame=frame, authors=authors, present=present, error=problem)

    def health(self, request: PageRequest) -> Response:
        checks = self._context.health()
        frame = self._frame(request, "Health", "/health")
        return page("health.html", frame=frame, checks=checks)

    def mail_health(self, request: PageRequest) -> Response:
        checks = self._context.mail_health()
        return self._part(request, "checks.html", "Mail", "/health", checks=checks)


def _page_number(request: PageRequest) -> int:
    text = request.http.query_params.get("page", "")
    return int(text) if re.fullmatch("[1-9][0-9]{0,5}", text) else 1


def _explain(error: PostroomError, state: life.State) -> str:
    """Return why something was not done: who decided before, without commands where the page has buttons."""
    if not isinstance(error, Conflict):
        return error.message_with_remedy
    match state:
        case life.Rejected(by=by, reason=reason, revise=revise):
            decision = "asked for another version" if revise else "rejected it"
            return f"{by} already {decision}{f': {reason}' if reason else '.'}"
        case life.Approved(verdict=verdict) | life.Sending(verdict=verdict):
            return f"{verdict.by} already approved it."
        case life.Sent(verdict=verdict) if verdict:
            return f"{verdict.by} already approved it, and it was sent."
    return error.message


def _require_red_box(level: Level, form: Form) -> None:
    if level == Level.STOP and form.get("seen") != "yes":
        raise Invalid("The letter has red warnings", remedy="Go back, read them, and tick the box.")


def _typed_addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses that a person typed, separated by commas, semicolons or lines."""
    try:
        return Address.parse_list(text)
    except Invalid:
        if not set(text) & set(";\n"):
            raise
        return Address.parse_list(re.sub(r"[;\r\n]+", ",", text))


def _typed_letter(letter: Letter, form: Form) -> Letter:
    """Return the letter with the fields that a person typed."""
    to, cc, bcc = (_typed_addresses(form.get(name, "")) for name in ("to", "cc", "bcc"))
    subject, text = form.get("subject", ""), normalize_text(form.get("text", ""))
    return replace(letter, to=to, cc=cc, bcc=bcc, subject=subject, text=text)
