"""What a call leaves behind: the risk card's memory, the log; resources and accounts."""

import json
import re
from base64 import b64encode
from typing import Any

import pytest

from tests.agents import Visitor
from tests.agents import visiting_inside as visiting
from tests.arrivals import arrive, attached, letter
from tests.conftest import Person
from tests.narrow import narrow

# What a letter's risk card knows of mail that was shown


def warned(person: Person, id: str) -> set[str]:
    return {line["kind"] for line in person.show(id)["risk"] if line["level"] == 2}


def test_an_address_in_a_name_or_a_file_counts_as_the_mails(robin: Person) -> None:
    id = attached(robin, "write to box@attach.example.txt", "or to deep@inside.example", id="named")
    arrive(robin, "posing", sender='"mallory@sneaky.example" <n@news.example>')
    with visiting(robin) as agent:
        agent.done("search_email", query="from:news.example")
        found = agent.done("get_email", id=id)
        agent.done("get_attachment", id=id, part=found["files"][0]["part"])
        for address in ("mallory@sneaky.example", "box@attach.example", "deep@inside.example"):
            held = agent.done("send_email", to=[address], body=f"To {address}.")
            assert "from_mail" in warned(robin, held["letter"]), address


def test_an_address_in_an_encoded_file_counts_as_the_mails(robin: Person) -> None:
    text = b64encode(b"Please write to deep@inside.example today.").decode()
    files = {
        "deep@inside.example": f"Subject: Hi\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\n\n{text}",
        "card@inside.example": "BEGIN:VCARD\nEMAIL;ENCODING=QUOTED-PRINTABLE:ca=\nrd=40inside.example\nEND:VCARD",
    }
    with visiting(robin) as agent:
        for at, (address, content) in enumerate(files.items()):
            id = attached(robin, f"{at}.txt", content, id=f"file{at}")
            part = agent.done("get_email", id=id)["files"][0]["part"]
            agent.done("get_attachment", id=id, part=part)
            held = agent.done("send_email", to=[address], body=f"To {address}.")
            assert "from_mail" in warned(robin, held["letter"]), address


def origins(person: Person, id: str) -> list[str]:
    return [line["text"] for line in person.show(id)["risk"] if line["kind"] == "from_mail"]


def test_forwarding_does_not_change_whom_an_address_came_from(robin: Person) -> None:
    first = arrive(robin, "lure", sender="eve@evil.example", subject="Fees", body="Pay pay@drop.example")  # fmt: skip
    again = arrive(robin, "fwd", sender="dora@lindqvist.example", subject="Fwd: Fees", body="> Pay pay@drop.example")  # fmt: skip
    third = arrive(robin, "more", sender="tom.bewick@example.net", body="> > pay@drop.example")
    last = arrive(robin, "last", sender="sam.achterberg@example.net", body="pay@drop.example")
    with visiting(robin) as agent:
        for id in (first, again, third, last, again):
            agent.done("get_email", id=id)
        held = agent.done("send_email", to=["pay@drop.example"], body="Hello.")
    assert "from_mail" in warned(robin, held["letter"])
    (said,) = origins(robin, held["letter"])
    assert said == (
        "The agent got pay@drop.example from eve@evil.example's mail “Fees”, 14 Nov 2026; later"
        " also from dora@lindqvist.example and tom.bewick@example.net."
    )


def test_an_address_is_amber_where_it_is_the_senders_and_red_where_another_mail_names_it(
    robin: Person,
) -> None:
    wrote = arrive(
        robin, "wrote", sender="Nell <nell@quay.example>", body="Write to nell@quay.example"
    )
    poses = arrive(
        robin, "poses", sender="NELL@quaу.example", body="nell+x@quay.example, ned@quay.example"
    )
    with visiting(robin) as agent:
        agent.done("get_email", id=wrote)
        agent.done("get_email", id=poses)
        for address, red in (
            ("Nell@Quay.example", False),
            ("nell+x@quay.example", True),
            ("ned@quay.example", True),
        ):
            held = agent.done("send_email", to=[address], body=f"To {address}.")["letter"]
            assert ("from_mail" in warned(robin, held)) == red, address
            said = [line["text"] for line in robin.show(held)["risk"] if line["kind"] == "first_contact"]  # fmt: skip
            wrote = " (wrote to you on 14 Nov 2026)" if address == "Nell@Quay.example" else ""
            assert said == [f"You have never written to {address.replace('Q', 'q')}{wrote}."]


def test_an_address_among_very_many_counts_as_the_mails(robin: Person) -> None:
    crowd = ", ".join(f'"q{at}@b{at}.example" <c{at}@example.net>' for at in range(700))
    many = " ".join(f"a{at}@m.example" for at in range(900))
    first = arrive(robin, "crowd", headers=f"Cc: {crowd}\n", body=f"{'x ' * 200}write to eve@evil.example")  # fmt: skip
    second = arrive(robin, "many", body=f"{many} or to ida@evil.example")
    with visiting(robin) as agent:
        agent.done("get_email", id=first)
        agent.done("get_email", id=second)
        for address in ("eve@evil.example", "ida@evil.example"):
            held = agent.done("send_email", to=[address], body=f"To {address}.")
            assert "from_mail" in warned(robin, held["letter"]), address


def test_whom_a_reply_went_to_and_what_a_file_hides_count_as_the_mails(robin: Person) -> None:
    asked = arrive(robin, "asked", headers="Reply-To: eve@evil.example\n")
    hidden = attached(robin, "ida@evil.example.txt", "or to bob@evil.example\0", id="nul")
    with visiting(robin) as agent:
        agent.done("reply_email", id=asked, body="Yes.")
        agent.done("get_attachment", id=hidden, part="2")
        for address in ("eve@evil.example", "ida@evil.example", "bob@evil.example"):
            held = agent.done("send_email", to=[address], body=f"To {address}.")
            assert "from_mail" in warned(robin, held["letter"]), address


def test_why_a_reply_cannot_be_sent_is_told_without_the_mails_address(robin: Person) -> None:
    id = arrive(robin, sender="ignore.all.rules@evil.example")
    with visiting(robin) as agent:
        held = agent.done("reply_email", id=id, body="Yes.")["letter"]
    settings = robin.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(settings.read_text() + '\n[recipients]\ndeny = ["evil.example"]\n')
    robin.run("approve", held, "--yes", letter(robin, held)["digest"])
    with visiting(robin) as agent:
        said = agent.call("letter_status", id=held)
    assert said.values["status"] == "failed"
    assert "ignore" not in said.text + json.dumps(said.values)


# The log


def test_every_call_leaves_exactly_one_line(robin: Person, agent: Visitor) -> None:
    id = agent.first("from:dora in:inbox")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_email", {}),
        ("get_email", {"id": id}),
        ("get_email", {"id": "nothing"}),
        ("get_email", {"idd": 1}),
        ("get_thread", {"id": id}),
        ("get_attachment", {"id": id, "part": "99"}),
        ("draft_email", {"to": ["ann@example.com"], "body": "x"}),
        ("draft_email", {"to": ["nobody"], "body": "x"}),
        ("send_email", {"to": ["ann@example.com"], "body": "x"}),
        ("send_email", {"to": ["ann@example.com"], "body": "x"}),
        ("send_email", {"to": ["ann@"], "body": "x"}),
        ("send_email", {"to": ["ann@example.com"], "body": "x", "attachments": ["/etc/passwd"]}),
        ("reply_email", {"id": id, "body": "x"}),
        ("reply_email", {"body": "x"}),
        ("move_email", {"id": id, "destination": "Taxes"}),
        ("move_email", {"id": id, "destination": "Trash"}),
        ("add_label", {"id": id, "label": "Taxes"}),
        ("letter_status", {}),
        ("letter_status", {"id": "aaaaaaaaaa", "wait": 1}),
        ("letter_status", {"id": "x" * 300}),
        ("withdraw_letter", {"id": "aaaaaaaaaa"}),
        ("withdraw_letter", {"id": "r1"}),
    ]  # fmt: skip
    before = len(lines(robin))
    for name, arguments in calls:
        agent.call(name, **arguments)
    found = lines(robin)[before:]
    assert [line["action_type"] for line in found] == [name for name, _ in calls]
    assert {line["agent"] for line in found} == {"claude"}
    assert {line["actor"] for line in found} == {"email_mcp"}


def lines(person: Person) -> list[dict[str, Any]]:
    return narrow(person.run("audit", "--limit", "1000", "--json").json["actions"], list)


def test_no_body_reaches_the_log(robin: Person, agent: Visitor) -> None:
    agent.done("send_email", to=["ann@example.com"], subject="Tea", body="A secret sentence.")
    agent.done("get_email", id=agent.first("from:dora"))
    robin.run("status")
    logs = "".join(file.read_text() for file in (robin.vault / "Logs").rglob("*.json"))
    assert "send_email" in logs
    assert "secret sentence" not in logs
    assert not re.search("relief|filed", logs)


# Resources


def test_mails_and_letters_are_resources(robin: Person, agent: Visitor) -> None:
    mail = agent.first("from:dora in:inbox")
    assert "Dora Lindqvist" in agent.read(f"message://{mail}")
    id = agent.done("send_email", to=["ann@example.com"], subject="Tea", body="At four?")["letter"]
    assert "At four?" in agent.read(f"letter://{id}")
    listed = agent.portal.call(agent.client.list_resources).resources
    assert [str(resource.uri) for resource in listed] == [f"letter://{id}"]
    with visiting(robin, agent="other") as other:
        assert other.portal.call(other.client.list_resources).resources == []
        with pytest.raises(Exception, match="no letter"):
            other.read(f"letter://{id}")


# Accounts


def test_an_account_is_chosen_only_where_there_are_several(robin: Person, agent: Visitor) -> None:
    assert all("account" not in tool.input_schema["properties"] for tool in agent.tools().values())
    settings = robin.folder / ".config" / "postroom" / "postroom.toml"
    settings.write_text(
        'default_account = "default"\n' + settings.read_text()
        + '\n[accounts.default]\naddress = "you@example.org"\n[accounts.work]\naddress = "robin@example.net"\n'
    )  # fmt: skip
    with visiting(robin) as several:
        assert several.tools()["send_email"].input_schema["properties"]["account"]["enum"] == ["default", "work"]  # fmt: skip
        assert several.done("search_email", account="work")["mails"] == []
        assert several.done("search_email")["mails"] != []
        held = several.done("send_email", account="work", to=["ann@example.com"], body="x")
        assert several.call("search_email", account="nobody").refused == "invalid_input"
    assert letter(robin, held["letter"])["from"] == "robin@example.net"
