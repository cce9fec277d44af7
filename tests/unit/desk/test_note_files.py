"""The attachments of an open letter, which a person can open from its note: the frozen bytes, and nothing else."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from postroom.core.errors import Invalid
from postroom.core.letter import Enclosure
from postroom.core.records import Entry
from postroom.desk.note_files import file_names
from postroom.vault.folders import LETTER_FILES
from tests.desks import SEND, THREE_DAYS, Office, titles
from tests.providers import BUSY, Courier

PDF = Enclosure("report.pdf", "application/pdf", b"%PDF-1.7 as frozen")


def with_files(office: Office, *files: Enclosure) -> Entry:
    return office.propose(office.letter(attachments=files or (PDF,)))


def links(office: Office, id: str) -> dict[str, Path]:
    """Return the files that a letter's note links to, by the text of the link, as Obsidian follows them."""
    note = office.note(id)
    found = re.findall(r"\[`+ ?(.*?) ?`+\]\((.*?)\)", note.read_text(encoding="utf-8"))
    return {label: Path(os.path.normpath(note.parent / unquote(target))) for label, target in found}


def files(office: Office) -> list[str]:
    """Return the paths of all files under Files/."""
    folder = office.vault / LETTER_FILES
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("folder", ["Pending_Approval", "Approved"])
def test_a_note_links_to_the_frozen_bytes_wherever_it_stands(office: Office, folder: str) -> None:
    file = Enclosure("März (neu) 100%, a_b.pdf", "application/pdf", b"%PDF-")
    entry = with_files(office, PDF, file)
    if folder == "Approved":
        office.move(entry.id, folder)  # the link is right before Postroom has seen the move, too
    found = {name: path.read_bytes() for name, path in links(office, entry.id).items()}
    assert found == {one.name: one.content for one in (PDF, file)}
    office.look()
    assert {name: path.read_bytes() for name, path in links(office, entry.id).items()} == found


def test_each_name_opens_nothing_that_runs_and_stands_in_the_letters_own_folder(
    office: Office,
) -> None:
    names = (
        "note.md",
        ".obsidian-plugins-x.js",
        "..-..-x.md",
        "setup.exe",
        "a`b[c]#d^e|f.pdf",
        "CON.txt",
        "page.html",
        "請求書.pdf",
        "picture.png",
    )
    entry = with_files(office, *(Enclosure(name, "application/pdf", b"x") for name in names))
    assert sorted(
        path.name for path in (office.vault / LETTER_FILES / entry.id).iterdir()
    ) == sorted(
        [
            "note.md.download",
            "obsidian-plugins-x.js.download",
            "x.md.download",
            "setup.exe.download",
            "a_b_c__d_e_f.pdf",
            "_CON.txt",
            "page.html.download",
            "請求書.pdf",
            "picture.png",
        ]
    )
    assert "saved as `note.md.download`" in office.page(entry.id, "Attachments")
    assert len(files(office)) == len(names)


@pytest.mark.parametrize(
    "name", ["../../x.md", ".obsidian/plugins/x.js", "a\\b", "..", "x\u202e.pdf"]
)
def test_a_name_with_a_path_in_it_is_no_attachment(name: str) -> None:
    with pytest.raises(Invalid, match="is not a file name"):
        Enclosure(name, "application/pdf", b"")


def test_files_of_the_same_name_an_empty_one_too_stand_beside_one_another(office: Office) -> None:
    names = ("a.pdf", "A.pdf", "a.pdf", "ü.pdf", "u\u0308.pdf", "a-2.pdf")
    many = [Enclosure(name, "application/pdf", bytes(n)) for n, name in enumerate(names)]
    entry = with_files(office, *many)
    saved = file_names(entry.letter)
    assert len({name.casefold() for name in saved}) == len(names)
    folder = office.vault / LETTER_FILES / entry.id
    assert [(folder / name).stat().st_size for name in saved] == list(range(len(names)))


def test_a_name_that_grows_when_it_is_composed_still_fits(office: Office) -> None:
    grows = Enclosure("\U0001d160" * 40 + ".pdf", "application/pdf", b"x")
    entry = with_files(office, PDF, grows)
    found = links(office, entry.id)
    assert [path.read_bytes() for path in found.values()] == [PDF.content, b"x"]


def test_a_link_that_obsidian_wrote_anew_for_a_moved_note_is_no_change(office: Office) -> None:
    entry = with_files(office)
    before = titles(office, entry.id)
    office.edit(entry.id, f"](../Pending_Approval/Files/{entry.id}/", f"](Files/{entry.id}/")
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"
    assert titles(office, entry.id) == before
    assert links(office, entry.id)["report.pdf"].read_bytes() == PDF.content


# As long as the letter is open


@pytest.mark.parametrize("way", ["sent", "rejected", "expired", "withdrawn"])
def test_the_files_are_gone_with_the_decision_and_the_note_has_no_link_to_them(
    office: Office, way: str
) -> None:
    entry = with_files(office)
    if way == "sent":
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.clock.go(10)
        office.desk.send_approved()
    elif way == "rejected":
        office.move(entry.id, "Rejected")
        office.look()
    elif way == "expired":
        office.clock.go(THREE_DAYS)
        office.look()
    else:
        office.desk.decide(entry.id, "reject", by="ada")
    assert not (office.vault / LETTER_FILES).exists()
    assert links(office, entry.id) == {}
    assert "- `report.pdf`, `application/pdf`" in office.page(entry.id, "Attachments")


def test_a_letter_that_waits_again_has_its_files_again(office: Office) -> None:
    entry = with_files(office)
    office.desk.decide(entry.id, "reject", by="ada")
    office.desk.decide(entry.id, "reopen", by="ada")
    assert links(office, entry.id)["report.pdf"].read_bytes() == PDF.content


def test_a_letter_that_is_held_keeps_its_files(office: Office, courier: Courier) -> None:
    entry = with_files(office)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    courier.refuses(BUSY)
    office.desk.send_approved()
    assert office.where(entry.id) == "Approved"
    assert links(office, entry.id)["report.pdf"].read_bytes() == PDF.content


def test_a_letter_without_attachments_makes_no_folder(office: Office) -> None:
    office.propose()
    assert not (office.vault / LETTER_FILES).exists()


# Files that somebody changes


@pytest.mark.parametrize("way", ["swapped", "deleted", "folder deleted"])
def test_a_file_that_is_not_as_frozen_any_more_is_put_back(office: Office, way: str) -> None:
    entry = with_files(office)
    path = links(office, entry.id)["report.pdf"]
    if way == "swapped":
        other = path.with_name("other")
        other.write_bytes(b"%PDF-1.7 harmless!")
        other.replace(path)
    else:
        path.unlink()
    if way == "folder deleted":
        path.parent.rmdir()
    office.look()
    assert path.read_bytes() == PDF.content
    assert office.state_of(entry.id) == "pending"


def test_what_a_person_wrote_into_a_file_is_set_aside(office: Office) -> None:
    entry = with_files(office)
    path = links(office, entry.id)["report.pdf"]
    for remarks in (b"with my remarks", b"with my remarks", b"with more remarks", b"", b"%PDF"):
        path.unlink()
        path.write_bytes(remarks)
        office.look()
        assert path.read_bytes() == PDF.content
    aside = {one.name: one.read_bytes() for one in path.parent.iterdir() if one != path}
    assert aside == {
        "changed report.pdf": b"with my remarks",
        "changed report-2.pdf": b"with more remarks",
    }
    office.desk.decide(entry.id, "reject", by="ada")
    assert sorted(one.name for one in path.parent.iterdir()) == sorted(aside)


def test_a_persons_own_files_stay(office: Office) -> None:
    entry = with_files(office)
    own = [
        office.write(f"{LETTER_FILES}/{entry.id}/my remarks.txt", "mine"),
        office.write(f"{LETTER_FILES}/Photos/a.jpg", "mine"),
        office.write(f"{LETTER_FILES}/photograph/a.jpg", "mine"),  # as long as an id
        office.write(f"{LETTER_FILES}/list.txt", "mine"),
    ]
    office.look()
    office.desk.decide(entry.id, "reject", by="ada")
    office.look()
    office.reopen().reconcile()
    assert [path.read_text() for path in own] == ["mine"] * 4
    assert len(files(office)) == 4


def test_a_file_that_a_person_changed_is_left_when_the_letter_closes(office: Office) -> None:
    entry = with_files(office)
    path = links(office, entry.id)["report.pdf"]
    path.unlink()
    path.write_bytes(b"with my remarks")
    office.desk.decide(entry.id, "reject", by="ada")
    assert path.read_bytes() == b"with my remarks"


# Links out of the vault


@pytest.mark.parametrize("place", [LETTER_FILES, f"{LETTER_FILES}/baaaaaaaaa"])
def test_a_link_in_the_place_of_a_folder_is_not_followed(office: Office, place: str) -> None:
    outside = office.folder / "outside"
    outside.mkdir()
    link = office.vault / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    entry = with_files(office)
    assert list(outside.iterdir()) == []
    assert links(office, entry.id) == {}
    assert "- `report.pdf`, `application/pdf`" in office.page(entry.id, "Attachments")
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


def test_a_link_in_the_place_of_a_file_is_neither_read_nor_written(office: Office) -> None:
    outside = office.folder / "secret"
    outside.write_bytes(b"mine")
    link = office.vault / LETTER_FILES / "baaaaaaaaa/report.pdf"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    entry = with_files(office)
    assert entry.id == "baaaaaaaaa"
    assert links(office, entry.id) == {}
    office.desk.decide(entry.id, "reject", by="ada")
    assert outside.read_bytes() == b"mine"


# Crashes


def test_files_that_a_crash_left_of_a_closed_letter_are_removed(office: Office) -> None:
    entry = with_files(office)
    entry = office.desk.verdicts.decide(entry.id, "reject", by="ada", reason="")
    path = links(office, entry.id)["report.pdf"]
    kept = path.read_bytes()
    office.desk.synced(entry)
    path.parent.mkdir(parents=True)
    path.write_bytes(kept)
    office.look()
    assert not (office.vault / LETTER_FILES).exists()


def test_a_note_whose_write_was_interrupted_gets_its_files(office: Office) -> None:
    """The process ended between the ledger and the vault."""
    entry = office.desk.proposals.propose(SEND, office.letter(attachments=(PDF,)))
    assert not (office.vault / LETTER_FILES).exists()
    office.reopen().reconcile()
    assert links(office, entry.id)["report.pdf"].read_bytes() == PDF.content
