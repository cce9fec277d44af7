"""Moving and labelling mail, and undoing it."""

from contextlib import closing
from datetime import UTC

from tests.agents import Visitor, visiting_inside
from tests.conftest import Person


def test_a_move_files_a_mail_and_can_be_undone(robin: Person, agent: Visitor) -> None:
    id = agent.first("from:dora in:inbox")
    before = agent.done("get_email", id=id)["labels"]
    moved = agent.done("move_email", id=id, destination="Taxes")
    assert (moved["added"], moved["removed"]) == (["Taxes"], ["INBOX"])
    assert agent.done("add_label", id=id, label="Later")["done"] is True
    after = agent.done("get_email", id=id)["labels"]
    assert "Taxes" in after
    assert "INBOX" not in after
    listed = robin.run("undo-moves", "--json").json["moves"]
    assert [move["added"] for move in listed] == [["Later"], ["Taxes"]]
    assert robin.run("undo-moves", "--all").out == "Undone: 2, 1.\n"
    assert agent.done("get_email", id=id)["labels"] == before
    assert robin.run("undo-moves", "--json").json["moves"] == []


def test_one_move_is_undone_by_its_number(robin: Person, agent: Visitor) -> None:
    id = agent.first("from:dora in:inbox")
    agent.done("add_label", id=id, label="One")
    agent.done("add_label", id=id, label="Two")
    listed = robin.run("undo-moves")
    assert "+Two" in listed.out
    assert "claude" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 80
    assert robin.run("undo-moves", "1").code == 0
    labels = agent.done("get_email", id=id)["labels"]
    assert "One" not in labels
    assert "Two" in labels
    assert robin.run("undo-moves", "99").code != 0


def test_trash_spam_sent_and_drafts_are_no_destinations(agent: Visitor) -> None:
    names = ["TRASH", "Trash", " trash", "Spam", "SENT", "sent", "Drafts", "DRAFT", "draft", "Bin"]
    names += ["Junk", "[Gmail]/Trash", "[Gmail]/Sent Mail", "Deleted Items", "TR\u200bASH"]
    names += [
        "INBOX.Trash",
        "INBOX/Trash",
        "\\Trash",
        "[Google Mail]/Spam",
        "\uff34rash",
        "trash/",
        "Papierkorb",
        "\u202etrash",
        "Tra\u00adsh",
        "tr\nash",
        "",
    ]
    id = agent.first("from:dora in:inbox")
    before = agent.done("get_email", id=id)["labels"]
    for tool, key in (("move_email", "destination"), ("add_label", "label")):
        for name in names:
            said = agent.call(tool, id=id, **{key: name})
            assert said.refused in {"permission_denied", "invalid_input"}, (name, said.text)
    assert agent.done("get_email", id=id)["labels"] == before


def test_what_the_person_threw_away_since_does_not_come_back_into_the_inbox(
    robin: Person, agent: Visitor
) -> None:
    id = agent.first("from:dora in:inbox")
    agent.done("move_email", id=id, destination="Taxes")
    from postroom.mail.local import LocalMailbox

    box = LocalMailbox(robin.folder / "state" / "mail" / "default.sqlite", [], now=lambda: 0.0, zone=UTC)  # fmt: skip
    with closing(box):
        box.relabel(id, add=frozenset({"TRASH"}))
    assert robin.run("undo-moves", "--all").code == 0
    with closing(LocalMailbox(box._database.path, [], now=lambda: 0.0, zone=UTC)) as again:
        assert again.message(id).labels & {"INBOX", "TRASH", "Taxes"} == {"TRASH"}


def test_a_mark_is_no_place_for_a_mail(agent: Visitor) -> None:
    id = agent.first("from:dora in:inbox")
    for name in ("UNREAD", "starred", "Important"):
        assert agent.call("move_email", id=id, destination=name).refused == "invalid_input"
    assert "INBOX" in agent.done("get_email", id=id)["labels"]


def test_what_has_the_label_already_is_left_alone(robin: Person, agent: Visitor) -> None:
    id = agent.first("from:dora in:inbox")
    assert agent.done("move_email", id=id, destination="inbox")["done"] is False
    assert robin.run("undo-moves", "--json").json["moves"] == []


def test_while_paused_no_mail_is_moved_or_labelled_and_the_person_may_still_undo(
    robin: Person, agent: Visitor
) -> None:
    id = agent.first("from:dora in:inbox")
    agent.done("add_label", id=id, label="Before")
    before = agent.done("get_email", id=id)["labels"]
    (robin.vault / "PAUSED.md").touch()
    for tool, key in (("move_email", "destination"), ("add_label", "label")):
        said = agent.call(tool, id=id, **{key: "Taxes"})
        assert said.refused == "permission_denied"
        assert "paused by PAUSED.md" in said.text
    assert agent.done("get_email", id=id)["labels"] == before
    assert robin.run("undo-moves", "--all").code == 0
    (robin.vault / "PAUSED.md").unlink()
    assert agent.done("move_email", id=id, destination="Taxes")["done"] is True


def test_moves_and_labels_of_all_agents_are_limited_and_a_restart_does_not_refill_it(
    robin: Person,
) -> None:
    file = robin.folder / ".config/postroom/postroom.toml"
    file.write_text(f"{file.read_text()}[limits]\nmoves_per_hour = 3\n")
    with visiting_inside(robin) as agent:
        id = agent.first("from:dora in:inbox")
        for label in ("One", "Two"):
            agent.done("add_label", id=id, label=label)
        assert agent.call("add_label", id=id, label="Bin").refused == "permission_denied"
        agent.done("add_label", id=id, label="Two")  # it is there: nothing is moved
        agent.done("move_email", id=id, destination="Three")
        said = agent.call("add_label", id=id, label="Four")
        assert said.refused == "rate_limited", said.text
        assert "3 moves and labels/hour" in said.text
    with visiting_inside(robin, agent="codex") as other:
        assert other.call("move_email", id=id, destination="Five").refused == "rate_limited"
        assert not {"Four", "Five"} & set(other.done("get_email", id=id)["labels"])
