"""The orchestrator for tests: over a desk of tests/desks, its questions answered without a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC
from email.message import EmailMessage
from pathlib import Path
from typing import Any, TypeVar

from postroom.core.errors import PostroomError
from postroom.core.handbook import Case, Judgement
from postroom.core.mail_view import view
from postroom.core.message import INBOX, UNREAD, Message
from postroom.core.records import InboxItem
from postroom.mail.mailbox import Arrival
from postroom.orchestrator.context import Question, RunContext, Servers, ToolValues
from postroom.orchestrator.run import Orchestrator
from postroom.services.incoming import BODY
from postroom.vault.markdown import sections
from postroom.vault.note import Note
from tests.desks import Office
from tests.fences import fenced

INBOXED = frozenset({INBOX, UNREAD})
T = TypeVar("T")
Ask = Callable[[str, str, Sequence[Question[Any]]], list[ToolValues | PostroomError]]


class Direct(Servers):
    """Who answers where no server can be asked: each question by its fallback."""

    def __init__(self) -> None:
        super().__init__({}, Path(), timeout=0)
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.answer: Ask = self.alone  # a test may put another in its place

    def ask(
        self, server: str, tool: str, questions: Sequence[Question[T]]
    ) -> list[T | PostroomError]:
        answers = self.answer(server, tool, questions)
        return [one.result(answer) for one, answer in zip(questions, answers, strict=True)]

    def alone(
        self, server: str, tool: str, questions: Sequence[Question[Any]]
    ) -> list[ToolValues | PostroomError]:
        """Return no answers, so that each question is answered by its fallback."""
        self.asked += [(server, tool, dict(one.arguments)) for one in questions]
        return [{} for _ in questions]


def answer_of(message: Message) -> ToolValues:
    """Return a mail as the server's `get_email` answers it."""
    mail = view(message, max_chars=BODY)
    files = [file._asdict() for file in mail.files]
    return {**mail._asdict(), "from": mail.sender, "files": files}


class Thinker:
    """A model that answers as it is told to."""

    def __init__(self, *answers: Judgement | PostroomError) -> None:
        self.answers = list(answers)
        self.cases: list[Case] = []

    def judge(self, case: Case) -> Judgement:
        self.cases.append(case)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, PostroomError):
            raise answer
        return answer


class Rounds(Office):
    """A person's mailbox and vault, and the orchestrator's rounds over them."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.told_of: list[tuple[str, dict[str, Any]]] = []
        self.model: Thinker | None = None
        self.most_drafts = 2
        self.accounts = ["default"]
        self.stopping = threading.Event()
        super().__init__(folder, **rules)
        self.start()

    def start(self) -> Orchestrator:
        """Start the orchestrator as a new process would."""
        self.servers = Direct()
        self.orchestrator = Orchestrator(
            RunContext(
                services=self.services,
                accounts=self.accounts,
                servers=self.servers,
                room="",
                model=self.model,
                model_name="a model" if self.model else "",
                most_drafts=self.most_drafts,
                interval=30,
                zone=UTC,
                emit=lambda event, **facts: self.told_of.append((event, facts)),
                stopping=self.stopping,
            )
        )
        return self.orchestrator

    def restart(self, **rules: Any) -> None:
        """End the process and start another."""
        self.reopen(**rules)
        self.start()

    def round(self, backlog: str = "") -> None:
        """Look at everything once; first take mail that was there before, if so asked."""
        if backlog:
            self.orchestrator.add_backlog(backlog)
        self.orchestrator.round()

    def handbook(self, *rules: str) -> None:
        """Write the person's rules."""
        lines = "\n".join(f"- {rule}" for rule in rules)
        (self.vault / "Handbook.md").write_text(f"# Handbook\n\n## Rules\n\n{lines}\n")

    def deliver(
        self,
        subject: str = "Tea",
        *,
        sender: str = "Ann <ann@example.com>",
        text: str = "Come at four?",
        id: str = "",
        labels: frozenset[str] = INBOXED,
        answers: str = "",
        headers: dict[str, str] | None = None,
    ) -> str:
        """Let a mail come in, and return its id."""
        self.drawn += 1
        message = EmailMessage()
        message["From"], message["To"] = sender, "you@example.org"
        message["Subject"] = subject
        message["Message-ID"] = f"<{id or self.drawn}@example.com>"
        if answers:
            message["In-Reply-To"] = answers
        for name, value in (headers or {}).items():
            message[name] = value
        message.set_content(text)
        before = set(self.ids())
        self.box.add_mails([Arrival(message.as_bytes(), labels, int(self.clock.wall) + self.drawn)])
        (new,) = set(self.ids()) - before
        return new

    def ids(self) -> list[str]:
        """Return the ids of all mails."""
        found = self.box.search("in:anywhere", limit=100)
        ids = [one.id for one in found.items]
        while found.cursor:
            found = self.box.search("in:anywhere", limit=100, cursor=found.cursor)
            ids += [one.id for one in found.items]
        return ids

    def item(self, id: str) -> InboxItem:
        """Return what the journal has of a mail."""
        with self.desk.ledger.write(synced=False) as tx:
            found = tx.inbox.get("default", id)
        assert found is not None
        return found

    def mail_note(self, id: str) -> tuple[str, Note]:
        """Return where the one note of a mail stands, and the note."""
        found = []
        for file in self.vault.rglob("*.md"):
            if file.is_symlink() or not file.is_file():
                continue
            raw = file.read_bytes()
            if f'id: "{id}"'.encode() in raw and b'type: "email"' in raw:
                found.append((str(file.relative_to(self.vault)), Note.parse(raw)))
        assert len(found) == 1, [path for path, _ in found]
        return found[0]

    def status(self, id: str) -> tuple[str, str]:
        """Return the folder and the status of a mail's note."""
        path, note = self.mail_note(id)
        return path.partition("/")[0], note.text("status")

    def letter_note(self, id: str) -> tuple[str, Note]:
        """Return where the note of the letter that answers a mail stands, and the note."""
        path = self.desk.ledger.notes.location(self.item(id).letter).path
        return path, Note.parse((self.vault / path).read_bytes())

    def letter_text(self, id: str) -> str | None:
        """Return the text of the letter that answers a mail, as its note shows it."""
        parts = dict(sections(self.letter_note(id)[1].body))
        return fenced(parts["Letter"])

    def carry(self, path: str, folder: str) -> None:
        """Move a note, as a person does in Obsidian."""
        target = self.vault / folder / path.rpartition("/")[2]
        target.parent.mkdir(exist_ok=True)
        (self.vault / path).rename(target)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return what was told of this kind."""
        return [facts for event, facts in self.told_of if event == name]

    def triaged(self) -> list[dict[str, Any]]:
        """Return the lines of the log that tell of a decision."""
        rows = [json.loads(line) for _, line in self.desk.ledger.actions.after()]
        return [row["parameters"] for row in rows if row["action_type"] == "triage_mail"]


def approved(rounds: Rounds, id: str) -> None:
    """Approve the answer to a mail as a person does in Obsidian, and let the undo window pass."""
    rounds.carry(rounds.letter_note(id)[0], "Approved")
    rounds.round()
    rounds.clock.go(rounds.rules.undo_seconds)
    rounds.round()


def with_model(rounds: Rounds, *answers: Judgement | PostroomError) -> Thinker:
    """Give the orchestrator a model that answers so."""
    rounds.model = Thinker(*answers)
    rounds.restart()
    return rounds.model
