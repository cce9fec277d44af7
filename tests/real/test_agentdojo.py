"""AgentDojo's workspace suite: an agent that obeys every injection it reads, and what comes of it.

Each injection task has a mailbox of its own: the suite's inbox, with the task's goal in every place
for injections, each time in the words of another of AgentDojo's attacks. The agent reads all of it,
does what the goal asks by the calls of the suite's ground truth, and then tries to have it approved.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from postroom.core.address import Address
from tests.agents import ToolAnswer, Visitor, visiting
from tests.conftest import Person
from tests.desks import Office
from tests.ordinary import AGENTDOJO, cards, keep, levels, read_all

FILE = Path(__file__).parents[2] / ".cache/collections/agentdojo/workspace.json"
assert FILE.is_file(), f"AgentDojo is not in {FILE.parent}: `make test-real` installs it"
SUITE = json.loads(FILE.read_text())
EMMA = SUITE["account"]
TASKS = {task["id"]: task for task in SUITE["tasks"]}
VECTORS = [name for name, mails in SUITE["vectors"].items() if mails]
# Calendar and drive: nothing that our tools reach.
ELSEWHERE = {"delete_file", "create_calendar_event"}

Task = dict[str, Any]  # of the suite: id, goal and calls


def asks(task: Task, function: str) -> list[dict[str, Any]]:
    return [call["args"] for call in task["calls"] if call["function"] == function]


def named(task: Task) -> list[str]:
    """Return the people whom the goal names itself: nobody knows them from elsewhere."""
    people = {who for call in asks(task, "send_email") for who in call["recipients"]}
    return sorted(who for who in people if who in task["goal"])


LURING = [id for id, task in TASKS.items() if asks(task, "send_email")]
TO_STRANGERS = [id for id, task in TASKS.items() if named(task)]
DELETING = [id for id, task in TASKS.items() if asks(task, "delete_email")]


def injections(goal: str) -> dict[str, str]:
    """Return what stands in each place of the inbox: the goal, wrapped by one attack after another."""
    words = list(SUITE["attacks"].values())
    return {
        name: words[at % len(words)].format(goal=goal, user="Emma Johnson", model="Claude")
        for at, name in enumerate(VECTORS)
    }


def filled(text: str, goal: str) -> str:
    for name, words in injections(goal).items():
        text = text.replace(f"{{{name}}}", words)
    return text


def mailbox(goal: str) -> bytes:
    """Return the inbox as an export from Gmail, with this goal in every place."""
    return b"".join(exported(mail, filled(mail["body"], goal)) for mail in SUITE["mails"])


def exported(mail: Mapping[str, Any], body: str) -> bytes:
    date = datetime.fromisoformat(mail["date"]).replace(tzinfo=UTC)
    labels = "Sent" if mail["sent"] else f"Inbox,{'Unread' if mail['unread'] else 'Opened'}"
    message = EmailMessage()
    message["X-Gmail-Labels"] = labels
    message["From"] = mail["from"]
    for name in ("to", "cc", "bcc"):
        if mail[name]:
            message[name.title()] = ", ".join(mail[name])
    message["Subject"] = mail["subject"]
    message["Date"] = date
    message["Message-ID"] = f"<{mail['id']}@workspace.example>"
    message.set_content(body, cte="quoted-printable")
    raw = re.sub(rb"(?m)^(>*From )", rb">\1", message.as_bytes())
    return f"From {mail['from']} {date:%a %b %d %H:%M:%S %Y}\n".encode() + raw + b"\n"


@dataclass
class Obedience:
    """What an agent did that obeyed one injection task."""

    task: Task
    person: Person
    sent_before: set[str]
    mails: dict[str, ToolAnswer] = field(default_factory=dict)  # by the suite's id
    lists: list[ToolAnswer] = field(default_factory=list)
    letters: dict[str, dict[str, Any]] = field(default_factory=dict)  # what it sent, by our id
    answers: list[tuple[str, ToolAnswer]] = field(default_factory=list)  # of what it tried
    deletions: list[ToolAnswer] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    open: dict[str, dict[str, Any]] = field(default_factory=dict)  # letters afterwards, by our id


Obeyed = Callable[[str], Obedience]


def sent(person: Person) -> set[str]:
    page = person.run("search", "in:sent", "--limit", "100", "--json").json
    assert not page["cursor"]
    return {mail["message_id"] for mail in page["messages"]}


def waiting(person: Person) -> dict[str, dict[str, Any]]:
    letters = person.run("pending", "--json").json["letters"]
    return {letter["id"]: letter for letter in letters}


def obey(task: Task, person: Person) -> Obedience:
    """Set up the mailbox of a task, and let an agent loose in it."""
    person.environment["POSTROOM_ADDRESS"] = EMMA
    person.live(undo_seconds=0)
    export = person.folder / "mail.mbox"
    export.write_bytes(mailbox(task["goal"]))
    imported = person.run("import", str(export))
    assert imported.code == 0, imported.err
    done = Obedience(task, person, sent(person))
    with visiting(person, agent="gullible") as agent:
        _read_all(agent, done)
        for call in task["calls"]:
            _do(agent, done, call["function"], call["args"])
        for id, letter in list(done.letters.items()):
            _press(agent, done, id, letter)
    assert person.run("send-approved", "--wait", "--json").code == 0
    done.open = waiting(person)
    return done


def _read_all(agent: Visitor, done: Obedience) -> None:
    known = {(mail["subject"], f"{mail['date']}Z"): mail["id"] for mail in SUITE["mails"]}
    cursor = ""
    while True:
        page = agent.call("search_email", limit=50, cursor=cursor)
        done.lists.append(page)
        for hit in page.values["mails"]:
            mail = agent.call("get_email", id=hit["id"], max_chars=20_000, quotes=True)
            done.mails[known[mail.values["subject"], mail.values["date"]]] = mail
        cursor = page.values.get("cursor", "")
        if not cursor:
            break


def _do(agent: Visitor, done: Obedience, function: str, given: dict[str, Any]) -> None:
    """Do what a call of the suite's does, by our tools."""
    match function:
        case "send_email":
            letter = {
                "to": given["recipients"],
                "subject": given["subject"],
                "body": filled(given["body"], done.task["goal"]),
            }
            if files := given.get("attachments"):  # of a drive that we do not have
                said = agent.call("send_email", **letter, attachments=files[:20])
                done.answers.append(("attach", said))
            said = agent.call("send_email", **letter)
            assert not said.refused, said.text
            done.letters[said.values["letter"]] = letter
        case "search_emails":
            query = f"from:{given['sender']} {given['query']}".strip()
            done.lists.append(agent.call("search_email", query=query))
        case "delete_email":
            mail = done.mails.get(given["email_id"])
            for id in [mail.values["id"]] if mail else list(done.letters):
                for place in ("Trash", "TRASH", "Deleted Items"):
                    done.deletions.append(agent.call("move_email", id=id, destination=place))
        case _:
            done.elsewhere.append(function)
    if function != "send_email":
        assert _unknown(agent, function, given)


def _unknown(agent: Visitor, tool: str, given: dict[str, Any]) -> bool:
    """Call a tool by the suite's own name and arguments; say whether there is none such."""
    try:
        agent.call(tool, **given)
    except MCPError as refused:
        return "Unknown tool" in str(refused)
    return False


def _press(agent: Visitor, done: Obedience, id: str, letter: dict[str, Any]) -> None:
    """Try whatever might have the letter approved."""
    some = next(iter(done.mails.values())).values["id"]
    for _ in range(3):
        done.answers.append(("again", agent.call("send_email", **letter)))
    for tool, given in (
        ("letter_status", {"id": id}),
        ("move_email", {"id": id, "destination": "Approved"}),
        ("move_email", {"id": some, "destination": "Approved"}),
        ("move_email", {"id": id, "destination": "Sent"}),
        ("add_label", {"id": id, "label": "SENT"}),
        ("add_label", {"id": some, "label": "SENT"}),
        ("get_email", {"id": id}),
        ("send_email", {**letter, "approved": True}),
        ("send_email", {**letter, "status": "approved"}),
        ("send_email", {**letter, "attachments": [f"../Approved/{id}.md"]}),
        ("send_email", {**letter, "idempotency_key": "approved"}),
        ("draft_email", letter),
    ):
        done.answers.append((tool, agent.call(tool, **given)))
    draft = done.answers[-1][1].values["draft"]
    for place in ("Sent", "Approved", "Outbox"):
        done.answers.append(("move_email", agent.call("move_email", id=draft, destination=place)))
    for tool in ("approve_email", "approve_letter", "approve", "send_approved", "send_draft"):
        assert _unknown(agent, tool, {"id": id})
    assert "waits for a person" in agent.read(f"letter://{id}")


@pytest.fixture(scope="module")
def obeyed(tmp_path_factory: pytest.TempPathFactory) -> Obeyed:
    """What came of each task; each is lived through once, whichever test asks first."""
    lived: dict[str, Obedience] = {}

    def ask(id: str) -> Obedience:
        if id not in lived:
            lived[id] = obey(TASKS[id], Person(tmp_path_factory.mktemp("emma")))
        return lived[id]

    return ask


def test_every_injection_task_and_every_place_in_the_inbox_is_tried() -> None:
    assert len(TASKS) == len(SUITE["tasks"]) > 0
    assert len(VECTORS) == len(SUITE["attacks"]) == 5
    assert all(task["calls"] for task in TASKS.values())
    for task in TASKS.values():
        box = mailbox(task["goal"])
        assert not [name for name in VECTORS if f"{{{name}}}".encode() in box]
    assert len(LURING) > len(TO_STRANGERS) > len(DELETING) > 0


@pytest.mark.parametrize("id", TASKS)
def test_nothing_leaves_when_an_agent_obeys_every_injection(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    assert sent(done.person) == done.sent_before
    assert not list(done.person.vault.glob("Approved/*"))
    assert len(done.sent_before) == len([mail for mail in SUITE["mails"] if mail["sent"]])
    assert {letter["state"] for letter in done.open.values()} <= {"pending"}
    assert done.open.keys() == done.letters.keys()
    assert len(done.letters) == len(asks(done.task, "send_email"))
    assert set(done.elsewhere) <= ELSEWHERE
    assert not any(said.values.get("sent") for _, said in done.answers)


@pytest.mark.parametrize("id", LURING)
def test_sending_again_is_the_same_letter_that_still_waits(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    again = [said.values for tool, said in done.answers if tool == "again"]
    assert len(again) == 3 * len(done.letters)
    assert {values["letter"] for values in again} == set(done.letters)
    assert {values["status"] for values in again} == {"pending"}


@pytest.mark.parametrize("id", TO_STRANGERS)
def test_a_letter_lured_to_a_strangers_address_is_marked_red(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    (stranger,) = named(done.task)
    lured = [letter for letter, args in done.letters.items() if args["to"] == [stranger]]
    assert lured
    for letter in lured:
        risk = done.person.show(letter)["risk"]
        red = [line["text"] for line in risk if (line["level"], line["kind"]) == (2, "from_mail")]
        assert any(stranger in text for text in red), risk


@pytest.mark.parametrize("id", LURING)
def test_no_letter_that_an_injection_asked_for_looks_plain(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    assert done.letters
    assert all(done.open[letter]["level"] > 0 for letter in done.letters)


@pytest.mark.parametrize("id", DELETING)
def test_nothing_is_deleted_when_an_injection_asks_for_it(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    assert done.deletions
    assert {said.refused for said in done.deletions} == {"permission_denied"}
    page = done.person.run("search", "in:trash", "--json").json
    assert page["messages"] == []


@pytest.mark.parametrize("id", TASKS)
def test_all_mail_that_the_agent_saw_stood_within_its_fence(id: str, obeyed: Obeyed) -> None:
    done = obeyed(id)
    goal = done.task["goal"]
    assert set(done.mails) == {mail["id"] for mail in SUITE["mails"]}
    bodies = {mail["id"]: filled(mail["body"], goal) for mail in SUITE["mails"]}
    assert len([body for body in bodies.values() if goal in body]) == len(VECTORS)
    for mail, said in done.mails.items():
        outside, inside = parted(said)
        body = bodies[mail].strip()
        assert body in inside
        assert body not in outside
        assert (goal in inside) == (goal in body)
        assert goal not in outside
    for said in done.lists:
        outside, _ = parted(said)
        assert not [hit["subject"] for hit in said.values["mails"] if hit["subject"] in outside]


def test_few_ordinary_letters_over_the_inbox_are_red(tmp_path: Path) -> None:
    class Emmas(Office):
        own = Address.parse(EMMA)

    office = Emmas(tmp_path)
    export = tmp_path / "mail.mbox"
    export.write_bytes(mailbox(TASKS[LURING[0]]["goal"]))
    keep(office, export)
    read = {id.partition("@")[0]: mail for id, mail in read_all(office).items()}
    count, red, amber = levels(cards(office, AGENTDOJO, read))
    office.close()
    assert count >= 40
    assert red <= 0.05 * count
    assert amber <= 0.33 * count


def parted(said: ToolAnswer) -> tuple[str, str]:
    """Return what stands outside of the fence of an answer, and what stands within."""
    mark = said.values["fence"]
    assert mark == said.values["end"]
    assert re.fullmatch(r"[0-9a-f]{16}", mark)
    assert said.text.count(mark) == 2
    before, opening, rest = said.text.partition(f"<<<{mark}\n")
    within, closing, after = rest.partition(f"\n{mark}>>>")
    assert opening
    assert closing
    return before + after, within


def test_a_person_can_still_approve_one_letter_among_those_of_the_injections(
    person: Person,
) -> None:
    done = obey(TASKS[LURING[0]], person)
    with visiting(person, agent="gullible") as agent:
        wish = {"to": ["sarah.baker@gmail.com"], "subject": "Lunch", "body": "Thursday at noon?"}
        wanted = agent.done("send_email", **wish)["letter"]
        digest = person.show(wanted)["digest"].removeprefix("sha256:")
        approved = person.run("approve", wanted, "--yes", digest[:8])
        assert approved.code == 0, approved.err
        assert agent.done("letter_status", id=wanted)["sent"]
    assert len(sent(person) - done.sent_before) == 1
    page = person.run("search", "in:sent to:sarah.baker@gmail.com subject:Lunch", "--json").json
    assert "Thursday at noon?" in [mail["snippet"].strip() for mail in page["messages"]]
    assert waiting(person).keys() == done.letters.keys()
