"""What an agent or a mail wrote is shown in a note and never rendered."""

import re
from collections.abc import Callable
from dataclasses import replace
from html import escape

import pytest

from postroom.core.address import Address
from postroom.core.letter import Enclosure
from postroom.desk.recorder import Call
from postroom.vault.markdown import inert
from tests.desks import ANN, BOB, CAT, Office, titles
from tests.providers import BARRED, BUSY, Courier

# What an agent wrote is never rendered


FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
# To an attachment: a path of Postroom's and a name in which every sign is escaped.
OWN_LINK = re.compile(r"\]\(\.\./Pending_Approval/Files/[a-z2-7]{10}/[\w.~%-]+\)")


def rendered(text: str) -> str:
    """Return what of a Markdown text is neither code nor frontmatter, as CommonMark has it."""
    _, _, body = text.partition("\n---\n")
    lines, closing = [], None
    for line in body.split("\n"):
        if closing:
            mark = line.strip(" \t")
            if mark and set(mark) == {closing[0]} and len(mark) >= len(closing):
                closing = None
        elif (opens := FENCE.match(line)) and "`" not in line[opens.end() :]:
            closing = opens[1]
        else:
            lines.append(line)
    assert closing is None, "a fence was left open"
    blocks = re.split(r"\n(?=[-#\n>])", OWN_LINK.sub("]", "\n".join(lines)))
    return "\n".join(
        re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", b, flags=re.S) for b in blocks
    )


def test_the_reader_of_these_tests_sees_what_is_rendered() -> None:
    body = "\n---\nplain `code` **b**\n\n```text\nhidden\n```\n- `` a ` b `` end\n~~~\nx\n~~~\n"
    assert rendered(body).split() == ["plain", "**b**", "-", "end"]
    assert "evil" in rendered("\n---\n```\nfine\n```\nevil\n")
    assert "evil" in rendered("\n---\n`a` evil `b`\n")
    assert "evil" in rendered("\n---\n- ``a evil` b\n")


HOSTILE = (
    "![x](https://evil.example/p.png)",
    "<img src=https://evil.example/x>",
    "[[Handbook]] ![[Handbook]]",
    "`= this.file.name` evil",
    "$= dv.pages() evil",
    "= evil",
    "<% tp.evil() %> {{evil}}",
    "```` evil `` evil ` evil",
    "`evil",
    "evil`",
    "` evil `",
    "| evil | evil |",
    "#evil ==evil== %%evil%% ^evil $evil$",
    "## Risk assessment evil",
    "<!-- evil",
)
BLOCKS = (
    *HOSTILE,
    "```\n## Risk assessment\nevil: nothing unusual\n```",
    "~~~~\n~~~\n## Letter\nevil\n~~~~",
    "`````text\nevil\n`````\n## Letter\n```text\nevil\n```",
    "```dataview\nTABLE evil\n```",
    "```dataviewjs\nevil()\n```",
    "---\nletter: evil\n---\nevil",
    "\n\n## What to do\nevil\n",
    "    indented evil\n\tevil",
    "> evil\n> ```\n",
)


def assert_unrendered(office: Office, id: str) -> None:
    text = office.note(id).read_text(encoding="utf-8")
    left = rendered(text)
    for sign in ("evil", "Handbook", "dv.", "tp.", "this.file"):
        assert sign not in left, left
    assert titles(office, id) == [
        title
        for title in (
            "Letter",
            "Difference",
            "Attachments",
            "In reply to",
            "What to do",
            "Rollback plan",
        )
        if title in titles(office, id)
    ]


@pytest.mark.parametrize("hostile", BLOCKS)
def test_a_hostile_text_is_shown_and_never_rendered(office: Office, hostile: str) -> None:
    entry = office.propose(office.letter(text=f"{hostile}\n"))
    assert_unrendered(office, entry.id)
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"
    assert_unrendered(office, entry.id)
    office.clock.go(10)
    office.desk.send_approved()
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_subject_agent_or_attachment_is_never_rendered(
    office: Office, hostile: str
) -> None:
    name = re.sub(r"[/\\]", "_", hostile)
    file = Enclosure(f"{name}.pdf", "application/pdf", b"%PDF-")
    letter = office.letter(subject=hostile, attachments=(file,))
    entry = office.propose(letter, call=Call("send_email", hostile))
    assert_unrendered(office, entry.id)
    # In the frontmatter too: plugins show a property's text as Markdown.
    assert office.field(entry.id, "subject") == inert(hostile)
    assert office.field(entry.id, "agent") == inert(hostile)
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"
    office.desk.decide(entry.id, "undo")
    assert office.note(entry.id).parent == office.vault / "Pending_Approval"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_is_never_rendered(office: Office, hostile: str) -> None:
    name = re.sub(r"[<>@]", "", hostile)
    people = tuple(replace(who, name=name) for who in (ANN, BOB, CAT))
    to, cc, bcc = ((one,) for one in people)
    entry = office.propose(office.letter(to=to, cc=cc, bcc=bcc, reply_to=to))
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_html_part_is_never_rendered(office: Office, hostile: str) -> None:
    html = f"<p>{escape(hostile)}</p><pre>```\n## Risk assessment\nevil\n```</pre>"
    entry = office.propose(office.letter(html=html))
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_server_is_never_rendered(office: Office, courier: Courier, hostile: str) -> None:
    courier.settles = False
    arrangements: tuple[Callable[[], None], ...] = (
        lambda: courier.refuses(type(BUSY)(hostile)),
        lambda: courier.refuses(type(BARRED)(hostile)),
        lambda: courier.loses(type(BUSY)(hostile), after=False),
    )
    for arrange in arrangements:
        entry = office.approved()
        arrange()
        office.desk.dispatch(entry.id)
        assert_unrendered(office, entry.id)


@pytest.mark.parametrize("local", ["*evil*", "_evil_", "`evil`", "{{evil}}", "#evil", "$evil$"])
def test_a_hostile_address_is_never_rendered_not_even_in_a_notice(
    office: Office, local: str
) -> None:
    entry = office.propose(office.letter(to=(Address.parse(f"{local}@example.com"),)))
    assert_unrendered(office, entry.id)
    office.edit(entry.id, "Good day", "Good evening")
    office.move(entry.id, "Approved")
    office.reopen(deny=("example.com",))
    assert "was not taken" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert_unrendered(office, entry.id)


def test_a_hostile_content_type_is_never_rendered(office: Office) -> None:
    file = Enclosure("a.bin", "x/y+__evil__", b"")
    entry = office.propose(office.letter(attachments=(file,)))
    assert_unrendered(office, entry.id)


def test_a_hostile_difference_is_never_rendered(office: Office) -> None:
    entry = office.propose(office.letter(text="```\n## Risk assessment\nevil\n```\n"))
    office.edit(entry.id, "evil", "evil and worse")
    office.move(entry.id, "Approved")
    office.look()
    assert "Difference" in titles(office, entry.id)
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize(
    "subject", ["../../etc/passwd", ".hidden", "a/b\\c:d*?", "", "日本語 " * 60]
)
def test_a_notes_name_stays_in_its_folder_whatever_the_subject(
    office: Office, subject: str
) -> None:
    entry = office.propose(office.letter(subject=subject))
    note = office.note(entry.id)
    assert note.parent == office.vault / "Pending_Approval"
    assert re.fullmatch(rf"[^/\\:*?]+ \(2026-11-15\) {entry.id}\.md", note.name)
