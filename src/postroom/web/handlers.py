"""What each address of the page does: it reads the request, calls the desk, and renders the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from typing import Final
from urllib.parse import quote

from starlette.responses import RedirectResponse, Response

from postroom.core import life
from postroom.core.address import Address
from postroom.core.errors import Conflict, Denied, Invalid, Limited, NotFound, PostroomError
from postroom.core.letter import Letter
from postroom.core.message import Message
from postroom.core.records import ANY_LETTER, Card, Check, Entry, LetterFilter, ListOrder
from postroom.core.stamp import DAY
from postroom.core.values import dataclass
from postroom.desk.desk import Desk
from postroom.desk.proposals import normalize_text
from postroom.services.services import Services
from postroom.web.letter_view import box_names, image_type, view_letter
from postroom.web.live import AutoDispatcher
from postroom.web.queue import PAGE_SIZE, Queue, QueueView, read_queue
from postroom.web.request import ERRORS, OTHER_ERROR, Form, PageRequest, page
from postroom.web.sessions import Sessions
from postroom.web.templates import CHART_DAYS, OUTCOMES, chart, letter_changes

MAX_MAILS: Final = 20  # of a conversation
FIELDS: Final = ("to", "cc", "bcc", "subject", "text")
# A sentence at the top of a page, after its kind: `good`, `note` or `stop`.
Notice = tuple[str, str]
_REOPENABLE: Final = {"rejected", "withdrawn", "expired", "failed"}
# After these, the toast can take the verdict back.
_REVERSIBLE: Final = {"approve", "changed", "reject", "revise"}
_UNDECIDED, _LEAVING = {"pending", "approved", "sending"}, {"approved", "sending", "sent"}
# By the name of an action: the states before and after it, and the sentence that confirms it.
CONFIRMATIONS: Final = {
    "approve": (_UNDECIDED, _LEAVING, "Approved."),
    "reject": ({"pending", "approved"}, {"rejected"}, "Rejected. The agent can see this."),
    "revise": (
        {"pending", "approved"},
        {"rejected"},
        "Sent back for another version. The agent can see this.",
    ),
    "undo": ({"approved"}, {"pending"}, "Approval undone. Nothing was sent."),
    "reopen": (_REOPENABLE, {"pending"}, "Back in the queue."),
    "resolve": ({"unknown"}, {"pending", "sent"}, "Recorded."),
    "change": ({"pending"}, {"pending"}, "Saved. The letter is waiting for you."),
    "changed": (_UNDECIDED, _LEAVING, "Changed and approved."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The addresses of the page, one method each, and what they work with."""

    services: Services
    sessions: Sessions
    dispatcher: AutoDispatcher
    zone: tzinfo
    checks: Callable[[], Sequence[Check]]  # those that answer at once
    mail_checks: Callable[[], Sequence[Check]]  # those that ask mail providers

    @property
    def _desk(self) -> Desk:
        return self.services.desk

    # The frame of a page

    def _page(self, request: PageRequest, template: str, *notices: Notice, status: int = 200, **values: object) -> Response:  # fmt: skip
        """Return a page in its frame. A page of a letter (`values` has its `entry`) and the summary also show the queue.

        With `back` in `values`, the template is a fragment of the page at that address: its script gets the fragment
        alone, and a browser without script a page of its own with a link back.
        """
        entry = values.get("entry")
        shows_queue = isinstance(entry, Entry) or template == "summary.html"
        if shows_queue and "queue" not in values:
            values["queue"] = self._queue(request)
        queue = values.pop("queue", None)
        if isinstance(queue, Queue) and isinstance(entry, Entry):
            queue = queue._replace(chosen=entry.id)
        # A page that loads itself again has not been read: its notices are kept for the next one.
        sentences = self.dispatcher.take_notices(keep=request.is_automatic)
        current = [*notices, *(("note", sentence) for sentence in sentences)]
        if problem := self.dispatcher.problem:
            current.append(("stop", f"Nothing is being sent: {problem}"))
        try:
            if paused := self._desk.paused():
                pause = f"Sending and triage are paused by the file {paused} in your vault. Delete it to continue."
                current.append(("note", pause))
        except PostroomError as error:
            current.append(("stop", error.message_with_remedy))
        frame = {
            "session": request.session,
            "rules": self._desk.rules,
            "zone": self.zone,
            "now": self._desk.clock(),
            "meter": self._desk.meter(),
            "waiting": self._desk.reader.lists.count("pending", "unknown"),
            "notices": current,
            "queue": queue,
            "query": queue.view.query if isinstance(queue, Queue) else "",
            "toast": self._toast(request) if shows_queue else None,
        }
        whole = "part.html" if "back" in values and not request.is_automatic else template
        return page(whole, status, frame=frame, part=template, **values)

    def _toast(self, request: PageRequest) -> dict[str, object] | None:
        """Return what confirms the verdict that was just given, and can take it back."""
        params = request.http.query_params
        action, id = params.get("done", ""), params.get("of") or request.http.path_params.get("id", "")  # fmt: skip
        before, after, sentence = CONFIRMATIONS.get(action, ((), (), ""))
        states = [*map(life.name, self._desk.reader.letters.past_states(id))] if sentence else []
        # A link from elsewhere must not make the page confirm what was not done.
        if len(states) < 2 or states[-2] not in before or states[-1] not in after:
            return None
        entry = self._desk.reader.letters.get(id)
        actual = "revise" if getattr(entry.state, "revise", False) else "reject"
        if action in {"reject", "revise"} - {actual} or (
            action == "changed" and not entry.is_edited
        ):
            return None
        back = set(life.offered(entry.state)) & {"undo", "reopen"}
        first = {what for line in entry.card.lines if line.kind == "first_contact" for what in line.about}  # fmt: skip
        return {
            "sentence": sentence,
            "entry": entry,
            "event": next(iter(back), "") if action in _REVERSIBLE else "",
            "is_elsewhere": id != request.http.path_params.get("id"),
            "first": [one.spec for one in entry.letter.envelope if one.spec in first]
            if states[-1] in _LEAVING
            else [],
        }

    # The queue and one letter

    def _queue(self, request: PageRequest) -> Queue:
        return read_queue(self._desk, QueueView.parse(request.http.query_params))

    def queue(self, request: PageRequest) -> Response:
        """Show the queue with its first letter open, or, where none waits, what there is to say."""
        self._reconcile_if_stale()
        queue = self._queue(request)
        if first := queue.first():
            return self._letter(request, first, queue=queue, place="/")
        return self._page(request, "summary.html", queue=queue, chart=self._chart())

    def letter(self, request: PageRequest) -> Response:
        self._reconcile_if_stale()
        return self._letter(request, request.id)

    def _reconcile_if_stale(self) -> None:
        with suppress(PostroomError):  # which the frame of the page reports
            self.dispatcher.reconcile_if_stale()

    def _reconcile(self) -> None:
        self.dispatcher.add_notices(self._desk.reconcile())

    def _letter(
        self, request: PageRequest, id: str, *notices: Notice, status: int = 200, **values: object
    ) -> Response:
        """Show a letter; `values` are further ones of the page."""
        desk, reader = self._desk, self._desk.reader
        entry = reader.letters.get(id)
        original = reader.letters.original(entry.id) if entry.is_edited else None
        waits = isinstance(entry.state, life.Pending)
        difference = desk.note_difference(entry) if waits else ""
        can_approve = waits and not difference and desk.rules.live
        return self._page(
            request,
            "letter.html",
            *notices,
            status=status,
            entry=entry,
            view=view_letter(entry, entry.card, has_boxes=can_approve),
            history=reader.letters.past_states(entry.id),
            changes=letter_changes(original, entry.letter) if original else [],
            note_difference=difference,
            # A letter whose note was edited cannot be approved before that is cleared up.
            offers=("reject",) if difference else life.offered(entry.state),
            replaced_by="" if entry.kind in life.OPEN else desk.calls.replaced_by(entry),
            **{"place": "/letter"} | values,
        )

    def print(self, request: PageRequest) -> Response:
        """Show a letter as it is printed: whole, with the proof of what was approved."""
        entry = self._desk.reader.letters.get(request.id)
        history = self._desk.reader.letters.past_states(entry.id)
        return page(
            "print.html",
            entry=entry,
            view=view_letter(entry, Card()),
            history=history,
            head=self._desk.reader.actions.head(),
            zone=self.zone,
            now=self._desk.clock(),
        )

    def plain(self, request: PageRequest) -> Response:
        letter = self._desk.reader.letters.get(request.id).letter
        text = letter.html if request.action == "source" else letter.text
        return Response(text, media_type="text/plain; charset=utf-8")

    def file(self, request: PageRequest) -> Response:
        files = self._desk.reader.letters.get(request.id).letter.attachments
        at = request.http.path_params["at"]
        if at >= len(files):
            raise NotFound(f"The letter {request.id} has no such attachment")
        # RFC 6266 section 4.3, and never with a type that a browser would show.
        named = {"content-disposition": f"attachment; filename*=UTF-8''{quote(files[at].name)}"}
        return Response(files[at].content, media_type="application/octet-stream", headers=named)

    def image(self, request: PageRequest) -> Response:
        """Return an attachment that is an image, as its bytes say, for the page to show."""
        files = self._desk.reader.letters.get(request.id).letter.attachments
        at = request.http.path_params["at"]
        kind = image_type(files[at]) if at < len(files) else ""
        if not kind:
            raise NotFound(f"The letter {request.id} has no such image")
        return Response(files[at].content, media_type=kind)

    def thread(self, request: PageRequest) -> Response:
        entry = self._desk.reader.letters.get(request.id)
        letter, answers = entry.letter, entry.card.answers
        messages: Sequence[Message] = ()
        problem = ""
        try:
            messages = self.services.mailbox.box(letter.account).thread(letter.thread).mails
        except PostroomError as error:
            problem = error.message_with_remedy
        return self._page(
            request,
            "thread.html",
            title="Conversation",
            back=f"/letter/{letter.id}",
            messages=messages[: -MAX_MAILS - 1 : -1],  # the newest first
            total=len(messages),
            answered=answers.message if answers else "",
            error=problem,
        )

    def source(self, request: PageRequest) -> Response:
        """Show the mail that an item of a letter came from, with the sentence that has it."""
        from postroom.review.places import sentence_about  # few pages need its tables

        entry, at = self._desk.reader.letters.get(request.id), request.http.path_params["at"]
        item = entry.card.items[at - 1] if 0 < at <= len(entry.card.items) else None
        if request.http.query_params.get("version", "") not in ("", f"{entry.version}"):
            raise Conflict("The letter was changed in the meantime", remedy="Load its page again.")
        if item is None or not item.mail:
            raise NotFound(f"The letter {entry.id} has no such source")
        account, _, id = item.mail.partition(" ")
        message, sentence, problem = None, "", ""
        try:
            message = self.services.mailbox.box(account).message(id)
            # A number may be named in other words, since cards show no secrets.
            text = entry.letter.text[slice(*item.places[0])] if item.places else item.what
            sentence = sentence_about(message.mail.text, item._replace(what=text))
        except PostroomError as error:
            problem = error.message_with_remedy
        return self._page(
            request,
            "source.html",
            title="Where it came from",
            back=f"/letter/{entry.id}",
            item=item,
            message=message,
            sentence=sentence,
            is_open=not request.is_automatic,
            error=problem,
        )

    # Verdicts

    def _decide(self, request: PageRequest, act: Callable[[], Entry], edited: str = "") -> Response:
        """Carry out a verdict; if somebody else was first, show their decision and keep what was typed.

        `edited` is the action of an edit: its name in `CONFIRMATIONS`.
        """
        self._reconcile()
        try:
            entry = self._desk.reader.letters.get(request.id)
            if request.form.get("state", entry.kind) != entry.kind:  # another state than was shown
                raise life.refuse(request.id, entry.state, "decided again")
            act()
        except (Conflict, Denied, Invalid, Limited) as error:
            self.dispatcher.feed.notify()
            state = self._desk.reader.letters.get(request.id).state
            if edited and isinstance(state, life.Pending) and isinstance(error, Conflict):
                return self.edit(request, f"{error.message}. This is what you typed; check it again.", 409)  # fmt: skip
            notice = ("stop", f"Not done. {_explain(error, state)}")
            return self._letter(request, request.id, notice, status=ERRORS.get(error.code, OTHER_ERROR)[0])  # fmt: skip
        self.dispatcher.feed.notify()
        self.dispatcher.wake_up.set()
        return RedirectResponse(self._next_page(request, edited or request.action), 303)

    def _next_page(self, request: PageRequest, done: str) -> str:
        """Return where the page goes after a verdict: to the letter that the form names as the next, or it stays."""
        query = QueueView.parse(request.http.query_params).query
        end = f"done={done}{query.replace('?', '&', 1)}"
        following = request.form.get("next")
        if following is None:
            return f"/letter/{request.id}?{end}"
        entry = self._desk.reader.letters.find(following) if following else None
        is_waiting = entry is not None and isinstance(entry.state, life.Pending | life.Unknown)
        return f"/{f'letter/{following}' if is_waiting else ''}?of={request.id}&{end}"

    def approve(self, request: PageRequest) -> Response:
        entry = self._desk.reader.letters.get(request.id)
        _require_boxes(entry.letter, entry.card, request.form)
        return self._decide(request, lambda: self._approve(request, request.digest))

    def _approve(self, request: PageRequest, digest: str) -> Entry:
        by, proof = request.session.person, self.sessions.proof(request.session)
        return self._desk.approve(request.id, by=by, digest=digest, proof=proof, via=life.Channel.PAGE)  # fmt: skip

    def decide(self, request: PageRequest) -> Response:
        """Carry out the one of `life.DECISIONS` that the address names."""
        event, form = request.action, request.form
        reason, sent = normalize_text(form.get("reason", "")).strip(), form.get("sent", "")
        if event == "revise" and not reason:
            raise Invalid("You did not say what should be different", remedy="Go back and write it: the agent reads it.")  # fmt: skip
        if event == "resolve" and sent not in {"yes", "no"}:
            raise Invalid("Was it sent or not?", remedy="Go back and choose one.")

        def act() -> Entry:
            by, proof = request.session.person, self.sessions.proof(request.session)
            return self._desk.decide(request.id, event, by=by, reason=reason, sent=sent == "yes", proof=proof)  # fmt: skip

        return self._decide(request, act)

    # Editing

    def edit(self, request: PageRequest, problem: str = "", status: int = 400) -> Response:
        self._reconcile()
        entry = self._desk.reader.letters.get(request.id)
        if not isinstance(entry.state, life.Pending):
            why = _explain(life.refuse(entry.id, entry.state, "edited"), entry.state)
            return self._letter(request, entry.id, ("stop", f"Not edited. {why}"), status=409)
        self._desk.refuse_edited_note(entry)
        letter = entry.letter
        fields = {name: ", ".join(map(str, getattr(letter, name))) for name in ("to", "cc", "bcc")}
        fields |= {"subject": letter.subject, "text": letter.text}
        fields |= {name: request.form[name] for name in FIELDS if name in request.form}
        status = status if problem else 200
        return self._page(request, "edit.html", status=status, entry=entry, fields=fields, error=problem)  # fmt: skip

    def preview(self, request: PageRequest) -> Response:
        entry = self._desk.reader.letters.get(request.id)
        if request.digest != entry.digest or not isinstance(entry.state, life.Pending):
            why = "The letter was changed in the meantime. This is what you typed; check it again."
            return self.edit(request, why, 409)
        try:
            letter, card = self._desk.verdicts.preview_edit(entry, typed_letter(entry.letter, request.form))  # fmt: skip
        except (Invalid, Denied) as error:
            return self.edit(request, error.message_with_remedy)
        if letter == entry.letter:
            return self.edit(request, "You have not changed anything yet.")
        fields = {name: request.form.get(name, "") for name in FIELDS}
        changed = replace(entry, letter=letter)
        view = view_letter(changed, card, has_boxes=self._desk.rules.live)
        # Their mails can be opened once the ledger has this card.
        notes = [note._replace(item=note.item._replace(mail="")) for note in view.notes]
        return self._page(
            request,
            "preview.html",
            entry=changed,
            card=card,
            view=view._replace(notes=notes),
            changes=letter_changes(entry.letter, letter),
            fields=fields | {"becomes": letter.digest},
        )

    def change(self, request: PageRequest) -> Response:
        entry = self._desk.reader.letters.get(request.id)
        approves = request.form.get("then") == "approve"

        def act() -> Entry:
            letter, card = self._desk.verdicts.preview_edit(entry, typed_letter(entry.letter, request.form))  # fmt: skip
            if letter.digest != request.form.get("becomes"):
                raise Conflict("The letter is not what you saw", remedy="Edit it again.")
            if approves:
                self._desk.verdicts.refuse_rehearsal()
                _require_boxes(letter, card, request.form)
            proof, by = self.sessions.proof(request.session), request.session.person
            changed = self._desk.edit(request.id, letter, proof=proof, was=request.digest, by=by)
            if not approves:
                return changed
            try:
                # A mail that came since the review may have made it red.
                _require_boxes(changed.letter, changed.card, request.form)
                return self._approve(request, changed.digest)
            except PostroomError as error:
                error.message = f"Your change was saved, but not approved: {error.message}"
                raise

        return self._decide(request, act, edited="changed" if approves else "change")

    # The other pages

    def history(self, request: PageRequest) -> Response:
        query = {name: request.http.query_params.get(name, "")[:200] for name in ("q", "agent", "state")}  # fmt: skip
        query["state"] = query["state"] if query["state"] in OUTCOMES else ""
        matching = LetterFilter(tuple(query["q"].split()[:10]), query["agent"] or None)
        states = (query["state"],) if query["state"] else life.CLOSED
        if matching != ANY_LETTER and not query["state"]:  # whoever searches may not know the state
            states = (*states, *life.OPEN)
        lists = self._desk.reader.lists
        total = lists.count(*states, matching=matching)
        number = request.page_number(total)
        skip = (number - 1) * PAGE_SIZE
        letters = lists.summaries(*states, matching=matching, newest=PAGE_SIZE, skip=skip, order=ListOrder.OUTCOME)  # fmt: skip
        return self._page(
            request,
            "history.html",
            query=query,
            number=number,
            letters=letters[::-1],
            total=total,
            chart=self._chart(),
        )

    def _chart(self) -> dict[str, object] | None:
        now = datetime.fromtimestamp(self._desk.clock().wall, self.zone)
        offset = now.utcoffset() or timedelta()
        since = now.timestamp() - CHART_DAYS * DAY
        counts = self._desk.reader.lists.per_day(since, int(offset.total_seconds()))
        return chart(counts, now.date())

    def chain(self, request: PageRequest) -> Response:
        self._desk.flush_log()
        faults = [f"{fault.file}:{fault.line}: {fault.what}" for fault in self._desk.log.verify()]
        head = self._desk.reader.actions.head()
        return self._page(request, "chain.html", title="Audit log", back="/history", head=head, faults=faults)  # fmt: skip

    def agents(self, request: PageRequest) -> Response:
        present: dict[str, tuple[str, int]] = {}
        problem = ""
        try:
            found = self.services.correspondence.present()
            present = {agent.name: (agent.status or "here", unread) for agent, unread in found}
        except PostroomError as error:
            problem = f"Cannot read agent mail: {error.message_with_remedy}"
        authors = self._desk.reader.lists.agents(self._desk.clock().wall - CHART_DAYS * DAY)
        return self._page(request, "agents.html", authors=authors, present=present, error=problem)

    def health(self, request: PageRequest) -> Response:
        return self._page(request, "health.html", checks=self.checks())

    def mail_health(self, request: PageRequest) -> Response:
        checks = self.mail_checks()
        return self._page(request, "checks.html", title="Mail", back="/health", checks=checks)


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


def _require_boxes(letter: Letter, card: Card, form: Form) -> None:
    if any(form.get(name) != "yes" for name in box_names(letter, card)):
        raise Invalid("The letter has red warnings", remedy="Tick the box beside each of them first.")  # fmt: skip


def typed_letter(letter: Letter, form: Form) -> Letter:
    to, cc, bcc = (_typed_addresses(form.get(name, "")) for name in ("to", "cc", "bcc"))
    subject, text = form.get("subject", ""), normalize_text(form.get("text", ""))
    return replace(letter, to=to, cc=cc, bcc=bcc, subject=subject, text=text)


def _typed_addresses(text: str) -> tuple[Address, ...]:
    """Return the addresses that a person typed, separated by commas, semicolons or lines."""
    try:
        return Address.parse_list(text)
    except Invalid:
        if not set(text) & set(";\n"):
            raise
        return Address.parse_list(re.sub(r"[;\r\n]+", ",", text))
