"""What a person wrote into a note stays; what only shows is put back; broken notes go where they belong."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from postroom.core.life import Channel
from tests.desks import ANN, SEND, THREE_DAYS, Office, journey, parsed, survives, titles
from tests.providers import BARRED, Courier

# What is a person's stays


def test_a_persons_keys_and_comments_survive_every_transition(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    mine = "# mine: keep\ntags: [a,  b]   # two\ndue: 2026-11-20\nratio: 1_000\n"
    office.edit(entry.id, "---\ntype:", f"---\n{mine}type:")
    assert office.look() == ""
    survives(office, courier, entry, mine)


def test_a_persons_sections_survive_every_transition(office: Office, courier: Courier) -> None:
    entry = office.propose()
    mine = "## My thoughts\nAsk **Cat** first.\n\n### And then\n- [ ] call\n"
    office.edit(entry.id, "## What to do", f"{mine}\n## What to do")
    survives(office, courier, entry, mine)


def test_what_a_person_wrote_at_the_top_survives_every_transition(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    office.edit(entry.id, "\n> [!warning]", "\n# My heading\nCall Cat.\n\n> [!warning]")
    survives(office, courier, entry, "# My heading\nCall Cat.\n")


def test_what_a_person_wrote_at_the_end_survives_every_transition(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.write_text(note.read_text(encoding="utf-8") + "\nMy remark: ask Cat.\n", encoding="utf-8")
    survives(office, courier, entry, "My remark: ask Cat.")


@pytest.mark.parametrize("title", ["", "Letter", "What to do"])
def test_what_a_person_wrote_into_a_section_of_ours_survives_every_transition(
    office: Office, courier: Courier, title: str
) -> None:
    entry = office.propose()
    page = office.page(entry.id, title)
    office.edit(entry.id, page, f"{page.rstrip()}\n\nMy remark: ask Cat.\n\n")
    survives(office, courier, entry, "My remark: ask Cat.")


def test_what_a_person_wrote_into_the_details_survives_every_transition(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    office.edit(entry.id, "> #### Record", "> My remark: ask Cat.\n>\n> #### Record")
    survives(office, courier, entry, "My remark: ask Cat.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> [!warning] Worth a look", "> [!warning] Worth a look\n> Cat says it is fine."),
        ("- To: `Ann", "- To: `Ann my aunt"),
        ("> #### Record", "> Cat says it is fine.\n>\n> #### Record"),
    ],
)
def test_a_part_of_postrooms_that_a_person_changed_is_shown_again_and_theirs_says_whose_it_is(
    office: Office, old: str, new: str
) -> None:
    entry = office.propose()
    before = office.head(entry.id)
    office.edit(entry.id, old, new)
    for _ in range(2):
        office.desk.edit(entry.id, replace(entry.letter, subject="Tea"))
        office.desk.edit(entry.id, entry.letter)
    assert titles(office, entry.id) == ["Letter", "What to do", "As you had it"]
    body = parsed(office, entry.id).body
    assert body.startswith(before.partition("- Subject")[0])
    assert body.count(new.partition("\n")[0]) == 1 + (new.partition("\n")[0] in before)


def test_a_remark_is_not_lost_where_a_crash_comes_between_a_note_and_its_record(
    office: Office,
) -> None:
    entry = office.propose()
    office.edit(entry.id, "\n> [!warning]", "\nCall Cat.\n\n> [!warning]")
    office.edit(entry.id, "## What to do", "## Mine\nAsk Bob.\n\n## What to do")
    note = office.note(entry.id)
    note.write_text(note.read_text() + "\nAnd the other remark.\n")
    office.look()
    approved = office.desk.ledger.letters.get(entry.id)
    approved = office.desk.verdicts.approve(approved, by="ada", via=Channel.TERMINAL)
    assert office.desk.display.write(approved)  # the record is lost
    office.reopen().reconcile()
    office.desk.decide(entry.id, "undo")
    assert titles(office, entry.id) == ["Letter", "What to do", "Mine", "Your remarks"]
    body = parsed(office, entry.id).body
    assert body.startswith("\nCall Cat.\n\n> [!warning]")
    assert body.count("> [!note]- Details") == body.count("> [!warning]") == 1
    assert body.endswith("## Your remarks\n\nAnd the other remark.\n")


@pytest.mark.parametrize("title", ["Notice", "Difference", "Attachments", "Rollback plan"])
def test_a_persons_section_with_a_title_of_ours_survives_every_transition(
    office: Office, courier: Courier, title: str
) -> None:
    entry = office.propose()
    office.edit(entry.id, "## What to do", f"## {title}\nMy remark.\n\n## What to do")
    survives(office, courier, entry, "My remark.")


def test_a_remark_beside_the_letters_fence_survives_an_edit_in_the_terminal(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "time.\n```\n", "time.\n```\nMy remark: ask Cat.\n")
    edited = office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    assert "My remark: ask Cat." in office.note(entry.id).read_text(encoding="utf-8")
    assert office.desk.display.text(edited) == "Other words.\n"


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_kind_of_newlines_and_a_byte_order_mark_survive_every_transition(
    office: Office, courier: Courier, bom: str, newline: str
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    text = note.read_text(encoding="utf-8").replace("type:", "mine: yes\ntype:", 1)
    note.write_bytes((bom + text.replace("\n", newline)).encode())
    for step in journey(office, courier, entry):
        raw = office.note(entry.id).read_bytes().decode()
        assert raw.startswith(f"{bom}---{newline}mine: yes{newline}"), step
        assert raw.count("\r\n") == (raw.count("\n") if newline == "\r\n" else 0), step
    assert office.desk.display.text(entry) == entry.letter.text


@pytest.mark.parametrize("way", ["rejected", "withdrawn", "expired", "failed"])
def test_an_edit_in_place_is_still_in_the_note_when_the_letter_closes(
    office: Office, courier: Courier, way: str
) -> None:
    entry = office.propose()
    if way == "failed":
        courier.refuses(BARRED)
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.clock.go(10)
        office.at("published", lambda: office.edit(entry.id, "Good day", "Good evening"))
        office.desk.send_approved()
    else:
        office.edit(entry.id, "Good day", "Good evening")
        if way == "rejected":
            office.desk.decide(entry.id, "reject", by="ada", reason="")
        elif way == "withdrawn":
            office.desk.calls.withdraw(SEND, entry.id)
        else:
            office.clock.go(THREE_DAYS)
            office.look()
    assert office.state_of(entry.id) == way
    assert "Good evening" in office.page(entry.id, "Letter")


def test_two_letter_sections_are_no_verdict_and_both_texts_stay(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "## What to do", "## Letter\n```text\nAnother try\n```\n\n## What to do")
    office.move(entry.id, "Approved")
    assert "cannot be found in it" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    text = office.note(entry.id).read_text(encoding="utf-8")
    assert "Another try" in text
    assert "Good day, for the 1th time." in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1th time.\n```", "1th time."),
        ("```text\nGood", "Good"),
        ("## Letter\n", "## A letter\n"),
        ("1th time.\n```", "1th time.\n```\n```text\nand this\n```"),
    ],
)
def test_a_letter_whose_text_cannot_be_told_is_not_approved_by_a_move(
    office: Office, old: str, new: str
) -> None:
    entry = office.propose()
    office.edit(entry.id, old, new)
    office.move(entry.id, "Approved")
    assert "cannot be found in it" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    assert "Good day, for the 1th time." in office.note(entry.id).read_text(encoding="utf-8")


def test_a_note_with_a_broken_fence_does_not_grow(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, "1th time.\n```", "1th time.")
    sizes = []
    for _ in range(4):
        office.move(entry.id, "Approved")
        office.look()
        sizes.append(office.note(entry.id).stat().st_size)
    assert sizes[1:] == [sizes[1]] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("```text\n", "~~~\n").replace("\n```\n", "\n~~~\n"),
        lambda text: text.replace("```text\n", "```text\n\n\n"),
        lambda text: text.replace("\n```\n", "\n\n\n```\n"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("## Letter\n", "## Letter\n\nRead this:\n\n"),
        lambda text: re.sub(r'^(letter|digest|desk): "(.*)"$', r"\1: \2", text, flags=re.M),
    ],
)
def test_what_changes_no_word_of_the_letter_does_not_keep_a_move_from_approving(
    office: Office, change: Callable[[str], str]
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    text = note.read_text(encoding="utf-8")
    assert change(text) != text
    note.write_bytes(change(text).encode())
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


@pytest.mark.parametrize("id", ["2222222222", "2e34567777", "77e2222222", "noyesnull2"])
def test_ids_are_compared_as_written_where_an_editor_took_the_quotes_away(
    office: Office, id: str
) -> None:
    entry = office.propose(office.letter(id=id))
    note = office.note(id)
    text = note.read_text(encoding="utf-8")
    note.write_text(text.replace(f'letter: "{id}"', f"letter: {id}"), encoding="utf-8")
    office.move(id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


# Display fields


@pytest.mark.parametrize(
    ("key", "lie"),
    [
        ("type", "email_reply"),
        ("action_type", "reply_email"),
        ("to", "eve@example.com"),
        ("subject", "Other"),
        ("created", "2020-01-01"),
        ("digest", "sha256:00"),
        ("agent", "somebody"),
        ("status", "approved"),
        ("expires", "2099-01-01T00:00:00Z"),
        ("risk", "nothing unusual"),
    ],
)
def test_a_changed_display_field_is_put_back_and_said(office: Office, key: str, lie: str) -> None:
    entry = office.propose()
    right = office.field(entry.id, key)
    office.edit(entry.id, f'{key}: "{right}"', f"{key}: {lie}")
    said = office.look()
    assert office.field(entry.id, key) == right
    assert key in said
    assert "put back" in said
    assert office.look() == ""


def test_a_subject_given_to_a_letter_without_one_is_put_back_and_said(office: Office) -> None:
    entry = office.propose(office.letter(subject=""))
    office.edit(entry.id, 'subject: ""', "subject: A fine subject")
    said = office.look()
    assert office.field(entry.id, "subject") == ""
    assert "subject" in said


def test_a_changed_recipient_names_the_way_to_change_it(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"', "to: eve@example.com")
    assert f"postroom edit {entry.id}" in office.look()


def test_a_note_moved_with_a_changed_recipient_goes_to_nobody_else(
    office: Office, courier: Courier
) -> None:
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"', "to: eve@example.com")
    office.move(entry.id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert [one.letter.envelope for one in courier.accepted] in ([], [(ANN,)])
    assert office.field(entry.id, "to") == "ann@example.com"


def test_a_display_field_that_was_removed_comes_back(office: Office) -> None:
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"\n', "")
    assert "to" in office.look()
    assert office.field(entry.id, "to") == "ann@example.com"


def test_a_letters_id_taken_out_of_its_note_comes_back(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.write_text(
        note.read_text(encoding="utf-8").replace(f'letter: "{entry.id}"\n', ""), encoding="utf-8"
    )
    office.look()
    assert office.note(entry.id) == note


def test_a_note_of_an_earlier_version_of_the_letter_approves_nothing(office: Office) -> None:
    entry = office.propose()
    old = office.note(entry.id).read_bytes()
    office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    office.desk.edit(entry.id, entry.letter)
    office.note(entry.id).unlink()
    office.write("Approved/from a backup.md", old.decode())
    assert entry.id in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"


# Broken notes


BROKEN = b"---\nto: [unclosed\nmine: My words\n---\nMy words too\n"


@pytest.mark.parametrize("broken", [BROKEN, b"\xff\xfe" + BROKEN, b"---\nno end, My words\n"])
def test_a_broken_note_is_said_counts_for_nothing_and_is_left_as_it_is(
    office: Office, broken: bytes
) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.write_bytes(broken)
    said = office.look()
    assert f"{note.name} cannot be read" in said
    assert "is ignored" in said
    assert note.read_bytes() == broken
    assert office.state_of(entry.id) == "pending"


def test_a_broken_note_moved_to_approved_approves_nothing_and_the_letter_gets_another(
    office: Office,
) -> None:
    entry = office.propose()
    office.note(entry.id).write_bytes(BROKEN)
    office.look()
    old = next((office.vault / "Pending_Approval").iterdir())
    (office.vault / "Approved").mkdir()
    moved = old.rename(office.vault / "Approved" / old.name)
    assert "cannot be read" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    assert moved.read_bytes() == BROKEN


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_broken_note_goes_with_its_letter_as_it_is(office: Office, verdict: str) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    note.write_bytes(BROKEN)
    if verdict == "approve":
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.clock.go(10)
        office.desk.send_approved()
    else:
        office.desk.decide(entry.id, "reject", by="ada", reason="")
    where = "Done" if verdict == "approve" else "Rejected"
    assert (office.vault / where / note.name).read_bytes() == BROKEN


def test_a_broken_note_that_was_mended_counts_again(office: Office) -> None:
    entry = office.propose()
    note = office.note(entry.id)
    good = note.read_bytes()
    note.write_bytes(BROKEN)
    office.look()
    note.write_bytes(good)
    assert office.look() == ""
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


@pytest.mark.parametrize("name", ["Approved/x.md", "Drafts/x.md", "Pending_Approval/x.md"])
def test_a_broken_note_of_nobodys_is_left_as_it_is(office: Office, name: str) -> None:
    note = office.write(name, "---\na: [\n---\n")
    office.look()
    assert note.read_text() == "---\na: [\n---\n"


@pytest.mark.parametrize("before", ["> [!warning]", "## What to do", "> [!note]- Details"])
@pytest.mark.parametrize("left_open", ["<!-- ask Ann", "<pre>", "```"])
def test_what_a_person_leaves_open_in_a_note_stays_once_however_often_it_is_written(
    office: Office, left_open: str, before: str
) -> None:
    entry = office.propose()
    (path,) = office.notes(entry.id)
    path.write_text(path.read_text().replace(before, f"{left_open} (mine)\n\n{before}", 1))
    sizes = set()
    for _ in range(3):
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.desk.decide(entry.id, "undo", by="ada")
        (path,) = office.notes(entry.id)
        sizes.add(path.stat().st_size)
    assert len(sizes) == 1
    assert path.read_text().count("(mine)") == 1
