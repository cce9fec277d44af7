"""What people do to the notes of mail: their word counts, their text stays, and nothing is lost."""

import os
from contextlib import closing
from pathlib import Path
from typing import Never

import pytest

from postroom.core.records import InboxItem
from postroom.desk.note_sync import NoteSync
from postroom.services.inbox import MailNotes
from postroom.vault.note import Note
from postroom.vault.vault import Ready, Vault
from tests.desks import Dead
from tests.rounds import Rounds


@pytest.fixture
def asking(rounds: Rounds) -> str:
    """A mail that was left to the person."""
    rounds.handbook("anything: needs_info")
    id = rounds.deliver("Tea")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    return id


def change(rounds: Rounds, id: str, old: str, new: str) -> Path:
    path = rounds.vault / rounds.mail_note(id)[0]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    return path


def test_status_done_files_the_mail(rounds: Rounds, asking: str) -> None:
    change(rounds, asking, 'status: "needs_info"', "status: done  # I rang her")
    rounds.round()
    path, note = rounds.mail_note(asking)
    assert path.startswith("Done/")
    assert "# I rang her" in note.raw.decode()


def test_status_pending_has_the_mail_judged_again(rounds: Rounds, asking: str) -> None:
    rounds.handbook("anything: draft_reply Gladly.")
    change(rounds, asking, 'status: "needs_info"', "status: pending")
    rounds.round()
    assert rounds.status(asking) == ("Needs_Action", "drafted")
    assert len(rounds.triaged()) == 2


def test_a_delegated_mail_is_judged_again_by_the_same_word(rounds: Rounds) -> None:
    rounds.handbook("anything: delegate Bob knows.")
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.handbook("anything: archive")
    change(rounds, id, 'status: "pending_approval"', "status: pending")
    rounds.round()
    assert rounds.status(id) == ("Done", "done")


def test_what_a_person_adds_stays_through_every_move(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    path = rounds.vault / rounds.mail_note(id)[0]
    text = path.read_text().replace('type: "email"', 'mood: fine\ntype: "email"')
    path.write_text(f"{text}\n## My thoughts\n\nBring cake.\n")
    rounds.round()
    rounds.desk.decide(rounds.item(id).letter, "reject", by="ada", reason="no")
    rounds.round()
    change(rounds, id, 'status: "needs_info"', "status: done")
    rounds.round()
    where, note = rounds.mail_note(id)
    assert where.startswith("Done/")
    assert note.text("mood") == "fine"
    assert "Bring cake." in note.body


def test_a_note_that_a_person_moved_to_done_is_done(rounds: Rounds, asking: str) -> None:
    rounds.carry(rounds.mail_note(asking)[0], "Done")
    rounds.round()
    assert rounds.item(asking).state == "done"
    assert rounds.status(asking) == ("Done", "done")


@pytest.mark.parametrize("folder", ["Approved", "Drafts", "Pending_Approval", "Rejected"])
def test_a_mail_that_was_moved_among_letters_is_never_sent_and_comes_back(
    rounds: Rounds, folder: str
) -> None:
    rounds.handbook("anything: delegate Bob knows.")
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.carry(rounds.mail_note(id)[0], folder)
    for _ in range(3):
        rounds.round()
        rounds.clock.go(60)
    assert rounds.status(id) == ("Needs_Action", "pending_approval")
    assert rounds.sent() == []
    assert rounds.desk.ledger.lists.summaries() == []


def test_a_note_that_was_renamed_is_still_the_mails(rounds: Rounds, asking: str) -> None:
    path = rounds.vault / rounds.mail_note(asking)[0]
    path.rename(path.with_name("Ann wants tea.md"))
    rounds.round()
    change(rounds, asking, 'status: "needs_info"', "status: done")
    rounds.round()
    assert rounds.mail_note(asking)[0] == "Done/Ann wants tea.md"


def test_a_note_that_was_deleted_is_let_go_and_said(rounds: Rounds, asking: str) -> None:
    (rounds.vault / rounds.mail_note(asking)[0]).unlink()
    rounds.round()
    assert rounds.item(asking).state == "gone"
    assert any("was deleted" in said["text"] for said in rounds.events("remark"))
    rounds.restart()
    rounds.round()
    assert not list(rounds.vault.glob("Needs_Action/*"))


def test_a_tools_note_does_not_become_a_deleted_mails(rounds: Rounds, asking: str) -> None:
    path = rounds.vault / rounds.mail_note(asking)[0]
    text = path.read_text().replace('status: "needs_info"', 'status: "pending"')
    path.unlink()
    twin = rounds.vault / "Needs_Action" / "twin.md"
    twin.write_text(text)
    with rounds.desk.ledger.write() as tx:
        tx.tool_notes.add("Needs_Action/twin.md", twin.stat().st_ino, "0" * 16, "claude")
    rounds.round()
    assert rounds.item(asking).state == "gone"
    assert twin.read_text() == text


def test_a_note_that_only_names_a_mail_is_not_its_note(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver("Tea")
    rounds.round()
    text = (rounds.vault / rounds.mail_note(id)[0]).read_text()
    forged = rounds.write("Needs_Action/forged.md", text.replace("Come at four?", "Pay them."))
    rounds.round()
    assert rounds.item(id).state == "done"
    assert forged.exists()
    assert len(rounds.triaged()) == 1


def test_a_mail_that_a_person_brings_back_is_judged_again(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.handbook("anything: needs_info")
    rounds.carry(rounds.mail_note(id)[0], "Needs_Action")
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")


def test_a_copy_of_a_mails_note_counts_for_nothing(rounds: Rounds, asking: str) -> None:
    path = rounds.vault / rounds.mail_note(asking)[0]
    copy = path.with_name("copy.md")
    copy.write_text(path.read_text().replace("needs_info", "pending", 1))
    rounds.round()
    assert rounds.item(asking).state == "needs_info"
    assert "pending" in copy.read_text()
    assert len(rounds.triaged()) == 1


def test_a_note_of_ours_that_does_not_parse_any_more_is_put_aside_with_the_reason(
    rounds: Rounds, asking: str
) -> None:
    path = change(rounds, asking, 'status: "needs_info"', 'status: "needs_info')
    broken = path.read_bytes()
    rounds.round()
    failed = rounds.vault / "Failed" / path.name
    assert failed.read_bytes() == broken
    why = Note.parse((rounds.vault / "Failed" / f"{path.stem} (why).md").read_bytes())
    assert why.text("reason").startswith("Line ")
    assert rounds.item(asking).state == "failed"
    assert path.stem in (rounds.vault / "Dashboard.md").read_text()
    # Mended and brought back, it goes on.
    failed.write_bytes(broken.replace(b'"needs_info', b'"pending"', 1))
    rounds.carry(f"Failed/{path.name}", "Needs_Action")
    rounds.round()
    assert rounds.status(asking) == ("Needs_Action", "needs_info")
    assert len(rounds.triaged()) == 2


def test_a_note_that_breaks_before_it_was_judged_is_put_aside_too(rounds: Rounds) -> None:
    rounds.handbook("anything: not a decision")
    id = rounds.deliver("Tea")
    rounds.round()
    path = change(rounds, id, 'type: "email"', "type: [")
    rounds.handbook("anything: archive")
    rounds.round()
    assert (rounds.vault / "Failed" / path.name).exists()
    assert rounds.triaged() == []


def test_a_persons_own_broken_note_is_left_alone_and_named(rounds: Rounds) -> None:
    own = rounds.write("Needs_Action/mine.md", "---\nstatus: [\n---\nbuy milk\n")
    for _ in range(2):
        rounds.round()
    assert own.read_text() == "---\nstatus: [\n---\nbuy milk\n"
    board = (rounds.vault / "Dashboard.md").read_text()
    assert "Needs_Action/mine.md" in board
    own.unlink()
    rounds.round()
    assert "mine.md" not in (rounds.vault / "Dashboard.md").read_text()


def test_a_ledger_from_a_backup_does_not_bring_back_mail_that_is_done(rounds: Rounds) -> None:
    import shutil

    rounds.handbook("anything: archive")
    rounds.close()
    kept = rounds.folder / "kept"
    shutil.copytree(rounds.state, kept)
    rounds.restart()
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.close()
    shutil.copy(kept / "ledger.sqlite", rounds.state / "ledger.sqlite")
    for end in ("-wal", "-shm"):
        (rounds.state / f"ledger.sqlite{end}").unlink(missing_ok=True)
    rounds.restart()
    rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert rounds.triaged() == []


class Unfollowed(MailNotes):
    """Notes that are never brought up to the ledger: the process ends before."""

    def sync_note(self, item: InboxItem) -> Never:
        raise Dead


def killed_before_the_note_follows(rounds: Rounds) -> None:
    triage = rounds.orchestrator._triage
    was = triage.mail_notes
    triage.mail_notes = Unfollowed(was.sync, was.inbox, was.report)
    with pytest.raises(Dead):
        rounds.round()
    rounds.restart()


def test_an_archived_mail_whose_note_has_not_moved_yet_is_not_judged_again(rounds: Rounds) -> None:
    rounds.handbook("anything: archive")
    id = rounds.deliver()
    killed_before_the_note_follows(rounds)
    assert rounds.status(id) == ("Needs_Action", "pending")
    rounds.round()
    assert rounds.status(id) == ("Done", "done")
    assert len(rounds.triaged()) == 1


@pytest.mark.parametrize("decision", ["needs_info", "delegate"])
def test_a_status_that_was_never_brought_up_to_date_is_nobodys_word(
    rounds: Rounds, decision: str
) -> None:
    rounds.handbook(f"anything: {decision}")
    id = rounds.deliver()
    killed_before_the_note_follows(rounds)
    os.utime(rounds.vault / rounds.mail_note(id)[0])  # as a sync client does
    rounds.round()
    assert (
        rounds.status(id)[1]
        == {"needs_info": "needs_info", "delegate": "pending_approval"}[decision]
    )
    assert len(rounds.triaged()) == 1


@pytest.mark.parametrize("folder", ["Plans", "Drafts"])
def test_a_note_of_the_same_name_elsewhere_is_not_the_mails(
    rounds: Rounds, asking: str, folder: str
) -> None:
    path = rounds.vault / rounds.mail_note(asking)[0]
    forged = path.read_text().replace("Come at four?", "Pay them.")
    rounds.write(f"{folder}/{path.name}", forged)
    path.unlink()
    rounds.round()
    assert rounds.item(asking).state == "gone"
    assert not list(rounds.vault.glob("Needs_Action/*"))


def test_odd_files_in_the_way_of_one_mail_do_not_keep_others_waiting(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    ids = [rounds.deliver(f"Tea {number}") for number in range(4)]
    rounds.round()
    folder, link, large, pipe = (rounds.vault / rounds.mail_note(id)[0] for id in ids)
    folder.unlink()
    (rounds.vault / "Plans" / folder.name).mkdir(parents=True)
    text = link.read_text()
    link.unlink()
    other = rounds.folder / "other.md"
    other.write_text(text.replace("needs_info", "pending"))
    link.symlink_to(other)
    large.write_bytes(large.read_bytes() + b"x" * 31_000_000)
    pipe.unlink()
    os.mkfifo(pipe)
    new = rounds.deliver("New")
    for _ in range(2):
        rounds.round()
    assert rounds.status(new) == ("Needs_Action", "needs_info")
    assert (rounds.vault / "Failed" / large.name).exists()
    assert other.read_text() == text.replace("needs_info", "pending")


def test_a_status_that_means_nothing_is_put_back_and_said(rounds: Rounds, asking: str) -> None:
    change(rounds, asking, 'status: "needs_info"', "status: erledigt")
    rounds.round()
    assert rounds.status(asking) == ("Needs_Action", "needs_info")
    assert any("was put back" in said["text"] for said in rounds.events("remark"))


def test_needs_action_that_is_away_for_a_moment_loses_no_mail(rounds: Rounds, asking: str) -> None:
    there = rounds.vault / "Needs_Action"
    there.rename(rounds.folder / "away")
    rounds.round()
    assert rounds.item(asking).state == "needs_info"
    if there.exists():
        there.rmdir()
    (rounds.folder / "away").rename(there)
    rounds.round()
    assert rounds.status(asking) == ("Needs_Action", "needs_info")
    assert len(rounds.triaged()) == 1


def test_the_mail_links_to_its_answer_and_back(rounds: Rounds) -> None:
    id = rounds.deliver("Tea")
    rounds.round()
    path, draft = rounds.letter_note(id)
    mail, note = rounds.mail_note(id)
    assert note.text("answer") == f"[[{path.rpartition('/')[2].removesuffix('.md')}]]"
    assert draft.text("answers") == f"[[{mail.rpartition('/')[2].removesuffix('.md')}]]"
    assert "- From: `You <you@example.org>`" in draft.body


def test_a_vault_that_is_another_desks_now_is_not_touched(rounds: Rounds, asking: str) -> None:
    from dataclasses import replace

    from postroom.core.errors import Denied

    def away() -> None:
        raise Denied("Another desk has this vault")

    rounds.desk.effects = replace(rounds.desk.effects, check_ownership=away)
    (rounds.vault / rounds.mail_note(asking)[0]).unlink()
    new = rounds.deliver("New")
    before = (rounds.vault / "Dashboard.md").read_bytes()
    rounds.round()
    assert rounds.item(asking).state == "needs_info"
    with rounds.desk.ledger.write(synced=False) as tx:
        assert tx.inbox.get("default", new) is None
    assert (rounds.vault / "Dashboard.md").read_bytes() == before
    assert rounds.events("trouble")[0]["error"].startswith("Another desk has this vault")


def test_a_note_in_plans_is_not_the_mails_by_its_number_alone(rounds: Rounds, asking: str) -> None:
    path = rounds.vault / rounds.mail_note(asking)[0]
    forged = path.read_text().replace("Come at four?", "Pay them.")
    (rounds.vault / "Plans").mkdir(exist_ok=True)
    path.write_text(forged)  # the very file, so that its number is that of the mail's note
    rounds.carry(f"Needs_Action/{path.name}", "Plans")
    rounds.round()
    assert rounds.item(asking).state == "gone"


def test_a_note_that_was_edited_before_it_was_written_down_is_the_mails(rounds: Rounds) -> None:
    rounds.handbook("anything: needs_info")
    id = rounds.deliver("Tea")

    class Ends(Vault):
        """A vault whose process ends once a note is there."""

        def create(
            self, path: str, data: bytes, *, mode: int = 0o644, ready: Ready = lambda _fd: None
        ) -> Never:
            super().create(path, data, mode=mode, ready=ready)
            raise Dead

    with closing(Ends(rounds.vault)) as ends:
        rounds.orchestrator._mail_notes.sync = NoteSync(ends, rounds.desk.ledger)
        with pytest.raises(Dead):
            rounds.round()
    path = rounds.vault / rounds.mail_note(id)[0]
    path.write_text(path.read_text() + "\nMine.\n")
    rounds.restart()
    rounds.round()
    assert rounds.status(id) == ("Needs_Action", "needs_info")
    assert "Mine." in rounds.mail_note(id)[1].body


def test_a_ledger_from_a_backup_goes_on_with_the_notes_that_are_there(rounds: Rounds) -> None:
    import shutil

    rounds.handbook("anything: needs_info")
    rounds.close()
    kept = rounds.folder / "kept.sqlite"
    shutil.copy(rounds.state / "ledger.sqlite", kept)
    rounds.restart()
    id = rounds.deliver("Tea")
    rounds.round()
    rounds.close()
    shutil.copy(kept, rounds.state / "ledger.sqlite")
    for end in ("-wal", "-shm"):
        (rounds.state / f"ledger.sqlite{end}").unlink(missing_ok=True)
    rounds.restart()
    rounds.round()
    assert rounds.status(id)[0] == "Needs_Action"  # which finds one note, and no second


def test_links_and_images_in_the_frontmatter_of_a_mails_note_are_not_live(rounds: Rounds) -> None:
    id = rounds.deliver(
        "![](https://evil.example/x.png)", sender='"[[Handbook]]" <ann@example.com>'
    )
    rounds.round()
    _, note = rounds.mail_note(id)
    assert note.text("subject") == r"!\[\](https://evil.example/x.png)"
    assert "[[" not in note.text("from")
    head = note.source[: note.head]
    assert "![" not in head
