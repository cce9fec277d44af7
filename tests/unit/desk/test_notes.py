"""A letter as a note: what it shows, what of it is a person's, and that no agent's text is ever rendered in it."""

import re
from dataclasses import replace

import pytest

from postroom.core.address import Address
from postroom.core.letter import Enclosure
from postroom.core.stamp import Stamp
from postroom.desk.outbox import Call, Proposal
from postroom.mail.mailbox import Arrival
from postroom.vault.note import Note, fenced, sections
from tests.desks import ANN, DESK, SEND, START
from tests.mails import mail
from tests.providers import BARRED, BUSY

BOB = Address.parse('"Bob, the other" <bob@example.net>')
CAT = Address.parse("cat@example.net")
THREE_DAYS = 72 * 3600.0


def parsed(office, id):
    return Note.parse(office.note(id).read_bytes())


def titles(office, id):
    return [title for title, _ in sections(parsed(office, id).body) if title]


# What it shows


def test_a_note_carries_the_frontmatter_of_document_000_and_the_letters_own(office):
    entry = office.propose(office.letter(to=(ANN, BOB), subject="Lunch: today?"))
    assert dict(parsed(office, entry.id).fields) == {
        "type": "email_send",
        "status": "pending",
        "action_type": "send_email",
        "to": "ann@example.com, bob@example.net",
        "subject": "Lunch: today?",
        "created": "2026-11-15T00:00:00Z",
        "letter": entry.id,
        "digest": entry.digest,
        "letter_version": "1",
        "desk": DESK,
        "agent": "claude",
        "expires": "2026-11-18T00:00:00Z",
        "risk": "worth a look",
    }


def test_a_reply_says_that_it_is_one(office):
    entry = office.propose(office.letter(in_reply_to="<a@example.com>", subject="Re: Hello"))
    assert office.field(entry.id, "type") == "email_reply"
    assert office.field(entry.id, "action_type") == "reply_email"


def test_approved_at_is_there_from_the_verdict_on_and_goes_with_it(office):
    entry = office.propose()
    assert "approved_at" not in parsed(office, entry.id).fields
    office.clock.go(60)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:01:00Z"
    office.desk.recall(entry.id)
    assert "approved_at" not in parsed(office, entry.id).fields
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.field(entry.id, "approved_at") == "2026-11-15T00:01:00Z"


def test_expires_is_there_while_the_letter_waits_and_is_reckoned_anew(office):
    entry = office.propose()
    office.clock.go(3600)
    office.desk.approve(entry.id, by="ada", digest=entry.digest)
    assert "expires" not in parsed(office, entry.id).fields
    office.desk.recall(entry.id)
    assert office.field(entry.id, "expires") == "2026-11-18T01:00:00Z"


def test_every_recipient_is_shown_in_full_the_hidden_ones_too(office):
    hidden = tuple(Address.parse(f"person{n}@example.net") for n in range(12))
    letter = office.letter(to=(ANN,), cc=(BOB,), bcc=hidden, reply_to=(CAT,))
    entry = office.propose(letter)
    shown = office.page(entry.id, "Envelope")
    assert "- From: `You <you@example.org>`\n" in shown
    assert "- To: `Ann <ann@example.com>`\n" in shown
    assert '- Cc: `"Bob, the other" <bob@example.net>`\n' in shown
    assert "- Reply-To: `cat@example.net`\n" in shown
    assert re.findall(r"- Bcc: `(.*)`", shown) == [str(address) for address in hidden]
    assert entry.digest in shown


def test_the_letters_text_is_the_one_fence_under_letter(office):
    text = "Dear Ann,\n\n## Not a heading\n\n- yours\n"
    entry = office.propose(office.letter(text=text))
    page = office.page(entry.id, "Letter")
    assert page == "## Letter\n```text\nDear Ann,\n\n## Not a heading\n\n- yours\n```\n\n"
    assert fenced(page) == text.rstrip("\n")


def test_a_note_has_document_000s_risk_assessment_and_rollback_plan(office):
    entry = office.propose()
    assert titles(office, entry.id) == [
        "What to do",
        "Envelope",
        "Letter",
        "Risk assessment",
        "Rollback plan",
    ]
    risk = office.page(entry.id, "Risk assessment")
    assert "Level: **worth a look**" in risk
    assert "- **look** `No person has written to them before: ann@example.com.`" in risk
    plan = office.page(entry.id, "Rollback plan")
    assert "10 seconds" in plan
    assert f"postroom undo {entry.id}" in plan


def test_attachments_are_shown_with_type_size_hash_and_origin(office):
    file = Enclosure("report.pdf", "application/pdf", b"%PDF-" + b"x" * 1995)
    entry = office.propose(office.letter(attachments=(file,)), origins=("mail",))
    shown = office.page(entry.id, "Envelope")
    assert "- Attachment: `report.pdf`, " in shown
    assert "2,000 bytes" in shown
    assert "from the mail" in shown
    assert "report.pdf" in office.page(entry.id, "Risk assessment")


EVERY = ("pending", "approved", "held", "unknown", "sent", "rejected", "withdrawn", "expired", "failed")  # fmt: skip


def brought(office, courier, kind, letter=None):
    """Bring a letter into a state, its note with it."""
    entry = office.propose(letter)
    courier.settles = False
    if kind in ("approved", "held", "unknown", "sent", "failed"):
        proof = None if office.rules.trust == "folder" else "correct horse"
        office.desk.approve(entry.id, by="ada", digest=entry.digest, proof=proof)
    if kind == "held":
        courier.refuses(BUSY)
    elif kind == "unknown":
        courier.loses(after=False)
    elif kind == "failed":
        courier.refuses(BARRED)
    if kind in ("held", "unknown", "sent", "failed"):
        office.clock.go(10)
        office.desk.send_approved()
    elif kind == "rejected":
        office.desk.reject(entry.id, by="ada", reason="no")
    elif kind == "withdrawn":
        office.desk.withdraw(SEND, entry.id)
    elif kind == "expired":
        office.clock.go(THREE_DAYS)
        office.look()
    assert office.state_of(entry.id) == {"held": "approved"}.get(kind, kind)
    return entry


@pytest.mark.parametrize("kind", EVERY)
def test_every_note_names_the_trust_level_and_the_mode(office, courier, kind):
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    assert "Trust level: folder (moving this note is the verdict)" in said
    assert "Mode: `live (test)`" in said


@pytest.mark.parametrize("kind", ["pending", "sent"])
def test_a_note_at_level_desk_says_that_moving_it_is_no_verdict(office, courier, kind):
    office.desk.set_passphrase("correct horse")
    office.reopen(trust="desk")
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    assert "Trust level: desk (a passphrase is the verdict)" in said
    if kind == "pending":
        assert "A moved note is no verdict here" in said
        assert "Move this note" not in said


def test_a_note_of_a_draft_names_the_trust_level_and_the_mode_too(office):
    draft = office.write(
        "Drafts/d.md",
        "---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n---\nHello Ann\n",
    )
    office.look()
    head = draft.read_text(encoding="utf-8").partition("\n---\n")[0]
    assert "folder" in head
    assert "live" in head


@pytest.mark.parametrize("kind", EVERY)
def test_every_note_says_what_can_be_done_or_what_became_of_it(office, courier, kind):
    entry = brought(office, courier, kind)
    said = office.head(entry.id)
    expected = {
        "pending": f"postroom approve {entry.id}",
        "approved": f"postroom undo {entry.id}",
        "held": "the server is busy",
        "unknown": f"postroom resolve {entry.id} --not-sent",
        "sent": "was sent at 2026-11-15T00:00:10Z",
        "rejected": "was rejected: no",
        "withdrawn": "was withdrawn by its agent",
        "expired": "expired without a verdict",
        "failed": "wants none of this",
    }
    assert expected[kind] in said


# HTML


HTML = "<p>Pay <b>Eve</b> at once</p>"


def test_html_that_says_something_else_is_shown_before_the_text(office):
    entry = office.propose(office.letter(text="Good day, Ann.\n", html=HTML))
    order = titles(office, entry.id)
    assert order.index("Letter as its HTML shows it") == order.index("Letter") - 1
    shown = office.page(entry.id, "Letter as its HTML shows it")
    assert fenced(shown).strip() == "Pay Eve at once"
    assert "Good day" not in shown
    assert "red" in office.field(entry.id, "risk")


def test_html_that_says_the_same_is_not_shown_twice(office):
    letter = office.letter(text="Good day, Ann.\n", html="<p>Good day, <b>Ann</b>.</p>")
    entry = office.propose(letter)
    assert "Letter as its HTML shows it" not in titles(office, entry.id)


@pytest.mark.parametrize("where", ["note", "terminal"])
def test_an_edit_of_the_text_drops_the_html(office, courier, where):
    entry = office.propose(office.letter(text="Good day, Ann.\n", html=HTML))
    if where == "note":
        office.edit(entry.id, "Good day, Ann.", "Good night, Ann.")
        office.move(entry.id, "Approved")
        office.look()
    else:
        office.desk.edit(entry.id, replace(entry.letter, text="Good night, Ann.\n"))
    anew = office.desk.ledger.entry(entry.id)
    assert (anew.letter.text, anew.letter.html) == ("Good night, Ann.\n", "")
    assert "Letter as its HTML shows it" not in titles(office, entry.id)
    assert "Pay" not in office.note(entry.id).read_text(encoding="utf-8")
    office.desk.approve(entry.id, by="ada", digest=anew.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert b"Eve" not in courier.accepted[0].wire


def test_an_edit_of_a_recipient_alone_keeps_the_html(office):
    entry = office.propose(office.letter(text="Good day, Ann.\n", html=HTML))
    edited = office.desk.edit(entry.id, replace(entry.letter, to=(BOB,)))
    assert edited.letter.html == HTML
    assert office.field(entry.id, "to") == "bob@example.net"


# What an agent wrote is never rendered


FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def rendered(text):
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
    blocks = re.split(r"\n(?=[-#\n])", "\n".join(lines))
    return "\n".join(
        re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", b, flags=re.S) for b in blocks
    )


def test_the_reader_of_these_tests_sees_what_is_rendered():
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


def assert_unrendered(office, id):
    text = office.note(id).read_text(encoding="utf-8")
    left = rendered(text)
    for sign in ("evil", "Handbook", "dv.", "tp.", "this.file"):
        assert sign not in left, left
    assert titles(office, id) == [
        title
        for title in (
            "What to do",
            "Outcome",
            "Notice",
            "Envelope",
            "Letter as its HTML shows it",
            "Letter",
            "Difference",
            "Risk assessment",
            "Rollback plan",
        )
        if title in titles(office, id)
    ]


@pytest.mark.parametrize("hostile", BLOCKS)
def test_a_hostile_text_is_shown_and_never_rendered(office, hostile):
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
def test_a_hostile_subject_agent_or_attachment_is_never_rendered(office, hostile):
    name = re.sub(r"[/\\]", "_", hostile)
    file = Enclosure(f"{name}.pdf", "application/pdf", b"%PDF-")
    letter = office.letter(subject=hostile, attachments=(file,))
    entry = office.propose(letter, call=Call("send_email", hostile))
    assert_unrendered(office, entry.id)
    assert office.field(entry.id, "subject") == hostile
    assert office.note(entry.id).parent == office.vault / "Pending_Approval"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_name_is_never_rendered(office, hostile):
    name = re.sub(r"[<>@]", "", hostile)
    people = tuple(replace(who, name=name) for who in (ANN, BOB, CAT))
    to, cc, bcc = ((one,) for one in people)
    entry = office.propose(office.letter(to=to, cc=cc, bcc=bcc, reply_to=to))
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_html_part_is_never_rendered(office, hostile):
    html = f"<p>{hostile}</p><pre>```\n## Risk assessment\nevil\n```</pre>"
    entry = office.propose(office.letter(html=html))
    assert "Letter as its HTML shows it" in titles(office, entry.id)
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_server_is_never_rendered(office, courier, hostile):
    courier.settles = False
    for arrange in (
        lambda: courier.refuses(type(BUSY)(hostile)),
        lambda: courier.refuses(type(BARRED)(hostile)),
        lambda: courier.loses(type(BUSY)(hostile), after=False),
    ):
        entry = office.approved()
        arrange()
        office.desk.dispatch(entry.id)
        assert_unrendered(office, entry.id)


@pytest.mark.parametrize("local", ["*evil*", "_evil_", "`evil`", "{{evil}}", "#evil", "$evil$"])
def test_a_hostile_address_is_never_rendered_not_even_in_a_notice(office, local):
    entry = office.propose(office.letter(to=(Address.parse(f"{local}@example.com"),)))
    assert_unrendered(office, entry.id)
    office.edit(entry.id, "Good day", "Good evening")
    office.move(entry.id, "Approved")
    office.reopen(deny=("example.com",))
    assert "was not taken" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert_unrendered(office, entry.id)


def test_a_hostile_content_type_is_never_rendered(office):
    file = Enclosure("a.bin", "x/y+__evil__", b"")
    entry = office.propose(office.letter(attachments=(file,)))
    assert_unrendered(office, entry.id)


def test_a_hostile_difference_is_never_rendered(office):
    entry = office.propose(office.letter(text="```\n## Risk assessment\nevil\n```\n"))
    office.edit(entry.id, "evil", "evil and worse")
    office.move(entry.id, "Approved")
    office.look()
    assert "Difference" in titles(office, entry.id)
    assert_unrendered(office, entry.id)


@pytest.mark.parametrize(
    "subject", ["../../etc/passwd", ".hidden", "a/b\\c:d*?", "", "日本語 " * 60]
)
def test_a_notes_name_stays_in_its_folder_whatever_the_subject(office, subject):
    entry = office.propose(office.letter(subject=subject))
    note = office.note(entry.id)
    assert note.parent == office.vault / "Pending_Approval"
    assert re.fullmatch(rf"2026-11-15 {entry.id}[\w ]*\.md", note.name)


# What is a person's stays


def journey(office, courier, entry):
    """Yield after each step of a letter's way through all its states but the closed ones."""
    id = entry.id
    yield "pending"
    office.desk.approve(id, by="ada", digest=entry.digest)
    yield "approved"
    office.desk.recall(id)
    yield "recalled"
    office.move(id, "Approved")
    office.look()
    yield "moved"
    (office.vault / "PAUSED").touch()
    office.clock.go(10)
    office.desk.send_approved()
    yield "paused"
    (office.vault / "PAUSED").unlink()
    courier.refuses(BUSY)
    office.desk.send_approved()
    yield "refused"
    office.clock.go(30)
    courier.settles = False
    courier.loses(after=False)
    office.desk.send_approved()
    yield "unknown"
    office.desk.resolve(id, by="ada", sent=False)
    yield "resolved"
    office.desk.reject(id, by="ada", reason="no")
    yield "rejected"
    office.move(id, "Approved")
    office.look()
    yield "reopened"
    office.clock.go(THREE_DAYS)
    office.look()
    yield "expired"
    office.move(id, "Approved")
    office.look()
    office.desk.approve(id, by="ada", digest=entry.digest)
    office.clock.go(10)
    office.desk.send_approved()
    assert office.state_of(id) == "sent"
    yield "sent"


def survives(office, courier, entry, *words):
    for step in journey(office, courier, entry):
        text = office.note(entry.id).read_bytes().decode()
        missing = [word for word in words if word not in text]
        assert not missing, (step, text)


def test_a_persons_keys_and_comments_survive_every_transition(office, courier):
    entry = office.propose()
    mine = "# mine: keep\ntags: [a,  b]   # two\ndue: 2026-11-20\nratio: 1_000\n"
    office.edit(entry.id, "---\ntype:", f"---\n{mine}type:")
    assert office.look() == ""
    survives(office, courier, entry, mine)


def test_a_persons_sections_survive_every_transition(office, courier):
    entry = office.propose()
    mine = "## My thoughts\nAsk **Cat** first.\n\n### And then\n- [ ] call\n"
    office.edit(entry.id, "## Envelope", f"{mine}\n## Envelope")
    survives(office, courier, entry, mine)


def test_what_a_person_wrote_at_the_top_survives_every_transition(office, courier):
    entry = office.propose()
    office.edit(entry.id, "\n## What to do", "\n# My heading\nCall Cat.\n\n## What to do")
    survives(office, courier, entry, "# My heading\nCall Cat.\n")


def test_what_a_person_wrote_at_the_end_survives_every_transition(office, courier):
    entry = office.propose()
    note = office.note(entry.id)
    note.write_text(note.read_text(encoding="utf-8") + "\nMy remark: ask Cat.\n", encoding="utf-8")
    survives(office, courier, entry, "My remark: ask Cat.")


@pytest.mark.parametrize(
    "title", ["What to do", "Envelope", "Letter", "Risk assessment", "Rollback plan"]
)
def test_what_a_person_wrote_into_a_section_of_ours_survives_every_transition(
    office, courier, title
):
    entry = office.propose()
    page = office.page(entry.id, title)
    office.edit(entry.id, page, f"{page.rstrip()}\n\nMy remark: ask Cat.\n\n")
    survives(office, courier, entry, "My remark: ask Cat.")


@pytest.mark.parametrize("title", ["Notice", "Difference", "Letter as its HTML shows it"])
def test_a_persons_section_with_a_title_of_ours_survives_every_transition(office, courier, title):
    entry = office.propose()
    office.edit(entry.id, "## Rollback plan", f"## {title}\nMy remark.\n\n## Rollback plan")
    survives(office, courier, entry, "My remark.")


def test_a_remark_beside_the_letters_fence_survives_an_edit_in_the_terminal(office):
    entry = office.propose()
    office.edit(entry.id, "time.\n```\n", "time.\n```\nMy remark: ask Cat.\n")
    edited = office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    assert "My remark: ask Cat." in office.note(entry.id).read_text(encoding="utf-8")
    assert office.desk.note_text(edited) == "Other words.\n"


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_kind_of_newlines_and_a_byte_order_mark_survive_every_transition(
    office, courier, bom, newline
):
    entry = office.propose()
    note = office.note(entry.id)
    text = note.read_text(encoding="utf-8").replace("type:", "mine: yes\ntype:", 1)
    note.write_bytes((bom + text.replace("\n", newline)).encode())
    for step in journey(office, courier, entry):
        raw = office.note(entry.id).read_bytes().decode()
        assert raw.startswith(f"{bom}---{newline}mine: yes{newline}"), step
        assert raw.count("\r\n") == (raw.count("\n") if newline == "\r\n" else 0), step
    assert office.desk.note_text(entry) == entry.letter.text


@pytest.mark.parametrize("way", ["rejected", "withdrawn", "expired", "failed"])
def test_an_edit_in_place_is_still_in_the_note_when_the_letter_closes(office, courier, way):
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
            office.desk.reject(entry.id, by="ada", reason="")
        elif way == "withdrawn":
            office.desk.withdraw(SEND, entry.id)
        else:
            office.clock.go(THREE_DAYS)
            office.look()
    assert office.state_of(entry.id) == way
    assert "Good evening" in office.page(entry.id, "Letter")


def test_two_letter_sections_are_no_verdict_and_both_texts_stay(office):
    entry = office.propose()
    office.edit(
        entry.id, "## Risk assessment", "## Letter\n```text\nAnother try\n```\n\n## Risk assessment"
    )
    office.move(entry.id, "Approved")
    assert "cannot be told apart" in office.look()
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
def test_a_letter_whose_text_cannot_be_told_is_not_approved_by_a_move(office, old, new):
    entry = office.propose()
    office.edit(entry.id, old, new)
    office.move(entry.id, "Approved")
    assert "cannot be told apart" in office.look()
    assert office.state_of(entry.id) == "pending"
    assert office.where(entry.id) == "Pending_Approval"
    assert "Good day, for the 1th time." in office.note(entry.id).read_text(encoding="utf-8")


def test_a_note_with_a_broken_fence_does_not_grow(office):
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
def test_what_changes_no_word_of_the_letter_does_not_keep_a_move_from_approving(office, change):
    entry = office.propose()
    note = office.note(entry.id)
    text = note.read_text(encoding="utf-8")
    assert change(text) != text
    note.write_bytes(change(text).encode())
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "approved"


@pytest.mark.parametrize("id", ["2222222222", "2e34567777", "77e2222222", "noyesnull2"])
def test_ids_are_compared_as_written_where_an_editor_took_the_quotes_away(office, id):
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
def test_a_changed_display_field_is_put_back_and_said(office, key, lie):
    entry = office.propose()
    right = office.field(entry.id, key)
    office.edit(entry.id, f'{key}: "{right}"', f"{key}: {lie}")
    said = office.look()
    assert office.field(entry.id, key) == right
    assert key in said
    assert "put back" in said
    assert office.look() == ""


def test_a_subject_given_to_a_letter_without_one_is_put_back_and_said(office):
    entry = office.propose(office.letter(subject=""))
    office.edit(entry.id, 'subject: ""', "subject: A fine subject")
    said = office.look()
    assert office.field(entry.id, "subject") == ""
    assert "subject" in said


def test_a_changed_recipient_names_the_way_to_change_it(office):
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"', "to: eve@example.com")
    assert f"postroom edit {entry.id}" in office.look()


def test_a_note_moved_with_a_changed_recipient_goes_to_nobody_else(office, courier):
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"', "to: eve@example.com")
    office.move(entry.id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert [one.letter.envelope for one in courier.accepted] in ([], [(ANN,)])
    assert office.field(entry.id, "to") == "ann@example.com"


def test_a_display_field_that_was_removed_comes_back(office):
    entry = office.propose()
    office.edit(entry.id, 'to: "ann@example.com"\n', "")
    assert "to" in office.look()
    assert office.field(entry.id, "to") == "ann@example.com"


def test_a_letters_id_taken_out_of_its_note_comes_back(office):
    entry = office.propose()
    note = office.note(entry.id)
    note.write_text(
        note.read_text(encoding="utf-8").replace(f'letter: "{entry.id}"\n', ""), encoding="utf-8"
    )
    office.look()
    assert office.note(entry.id) == note


def test_a_note_of_an_earlier_version_of_the_letter_approves_nothing(office):
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
def test_a_broken_note_is_said_counts_for_nothing_and_is_left_as_it_is(office, broken):
    entry = office.propose()
    note = office.note(entry.id)
    note.write_bytes(broken)
    said = office.look()
    assert f"{note.name} cannot be read" in said
    assert "counts for nothing" in said
    assert note.read_bytes() == broken
    assert office.state_of(entry.id) == "pending"


def test_a_broken_note_moved_to_approved_approves_nothing_and_the_letter_gets_another(office):
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
def test_a_broken_note_goes_with_its_letter_as_it_is(office, verdict):
    entry = office.propose()
    note = office.note(entry.id)
    note.write_bytes(BROKEN)
    if verdict == "approve":
        office.desk.approve(entry.id, by="ada", digest=entry.digest)
        office.clock.go(10)
        office.desk.send_approved()
    else:
        office.desk.reject(entry.id, by="ada", reason="")
    where = "Done" if verdict == "approve" else "Rejected"
    assert (office.vault / where / note.name).read_bytes() == BROKEN


def test_a_broken_note_that_was_mended_counts_again(office):
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
def test_a_broken_note_of_nobodys_is_left_as_it_is(office, name):
    note = office.write(name, "---\na: [\n---\n")
    office.look()
    assert note.read_text() == "---\na: [\n---\n"


# Drafts


def draft(office, head="", body="Hello Ann,\n\nyours\n", where="Drafts/d.md"):
    head = head or "to: ann@example.com\nsubject: Lunch\nstatus: pending_approval\n"
    return office.write(where, f"---\n{head}---\n{body}")


def letter_of(path):
    return Note.parse(path.read_bytes()).text("letter")


def test_a_draft_with_a_recipient_that_asks_for_approval_is_frozen_as_it_appears(office):
    path = draft(office)
    office.look()
    entry = office.desk.ledger.entry(letter_of(path))
    assert (entry.kind, entry.home, entry.form) == ("pending", "Drafts", "draft")
    assert (entry.letter.subject, entry.letter.text) == ("Lunch", "Hello Ann,\n\nyours\n")
    assert entry.letter.envelope == (Address("ann", "example.com"),)
    note = Note.parse(path.read_bytes())
    assert note.body == "Hello Ann,\n\nyours\n"
    assert note.text("status") == "pending_approval"
    assert note.text("digest") == entry.digest
    assert note.text("desk") == DESK
    assert note.text("expires") == "2026-11-18T00:00:00Z"
    assert office.look() == ""


@pytest.mark.parametrize(
    "head",
    [
        "subject: Lunch\nstatus: pending_approval\n",
        "to: ann@example.com\nsubject: Lunch\n",
        "to: ann@example.com\nsubject: Lunch\nstatus: draft\n",
    ],
)
def test_a_draft_without_recipient_or_request_is_left_alone(office, head):
    path = draft(office, head)
    before = path.read_bytes()
    office.look()
    assert path.read_bytes() == before
    assert office.desk.ledger.lines() == []


def test_a_draft_that_cannot_be_a_letter_is_said_and_left_alone(office):
    path = draft(office, "to: nobody\nsubject: Lunch\nstatus: pending_approval\n")
    before = path.read_bytes()
    assert "Drafts/d.md was not taken as a letter" in office.look()
    assert path.read_bytes() == before


def test_a_draft_is_listed_moved_and_sent_like_any_letter(office, courier):
    path = draft(office)
    office.look()
    id = letter_of(path)
    assert [line.id for line in office.desk.ledger.lines("pending")] == [id]
    office.move(id, "Approved")
    office.look()
    assert office.state_of(id) == "approved"
    office.desk.recall(id)
    assert office.where(id) == "Drafts"
    office.move(id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert office.where(id) == "Done"
    assert office.field(id, "status") == "done"
    assert courier.accepted[0].letter.text == "Hello Ann,\n\nyours\n"


def test_a_draft_rejected_goes_to_rejected_and_one_deleted_comes_back(office):
    path = draft(office)
    office.look()
    id = letter_of(path)
    path.unlink()
    assert "Drafts/" in office.look()
    assert office.where(id) == "Drafts"
    assert Note.parse(office.note(id).read_bytes()).body.strip() == "Hello Ann,\n\nyours"
    office.desk.reject(id, by="ada", reason="")
    assert office.where(id) == "Rejected"


def test_a_draft_edited_and_moved_is_frozen_anew_and_comes_back_to_drafts(office, courier):
    path = draft(office)
    office.look()
    id = letter_of(path)
    office.edit(id, "Hello Ann", "Hello dear Ann")
    office.move(id, "Approved")
    assert "frozen anew" in office.look()
    assert office.where(id) == "Drafts"
    assert office.desk.ledger.entry(id).letter.text == "Hello dear Ann,\n\nyours\n"
    office.move(id, "Approved")
    office.look()
    office.clock.go(10)
    office.desk.send_approved()
    assert courier.accepted[0].letter.text == "Hello dear Ann,\n\nyours\n"


def test_everybody_named_in_a_draft_is_in_its_envelope(office):
    head = (
        "to:\n  - Ann <ann@example.com>\n  - bob@example.net\ncc: cat@example.net\n"
        "bcc: [dan@example.net]\nsubject: Lunch\nstatus: pending_approval\n"
    )
    path = draft(office, head)
    office.look()
    letter = office.desk.ledger.entry(letter_of(path)).letter
    assert [a.spec for a in letter.to] == ["ann@example.com", "bob@example.net"]
    assert [a.spec for a in letter.cc] == ["cat@example.net"]
    assert [a.spec for a in letter.bcc] == ["dan@example.net"]


def test_a_draft_that_answers_a_mail_is_threaded(office):
    office.box.keep([Arrival(mail(message_id="<q@example.com>"), frozenset({"INBOX"}), int(START))])
    (found,) = office.box.search("in:inbox").items
    head = (
        f"to: ann@example.com\nsubject: 'Re: Hello'\nstatus: pending_approval\n"
        f"reply_to_message_id: {found.id}\n"
    )
    path = draft(office, head)
    office.look()
    letter = office.desk.ledger.entry(letter_of(path)).letter
    assert letter.in_reply_to == "<q@example.com>"
    assert letter.thread == office.box.message(found.id).thread


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("to: ann@example.com", "to: eve@example.com"),
        ("subject: Lunch", "subject: Supper"),
        ("status: ", "cc: eve@example.com\nstatus: "),
        ("status: ", "bcc: eve@example.com\nstatus: "),
    ],
)
def test_a_frozen_drafts_display_fields_are_put_back_and_said(office, old, new):
    path = draft(office)
    office.look()
    id = letter_of(path)
    office.edit(id, old, new)
    said = office.look()
    assert new.partition(":")[0] in said
    assert "eve@example.com" not in office.note(id).read_text(encoding="utf-8")
    assert "Supper" not in office.note(id).read_text(encoding="utf-8")


def test_a_frozen_drafts_own_keys_survive_every_transition(office, courier):
    path = draft(
        office,
        "to: Ann <ann@example.com>  # my friend\nsubject: Lunch\n"
        "priority: urgent\nstatus: pending_approval\n",
    )
    office.look()
    entry = office.desk.ledger.entry(letter_of(path))
    survives(
        office, courier, entry, "priority: urgent\n", "to: Ann <ann@example.com>  # my friend\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_drafts_newlines_survive_and_are_no_edit(office, newline):
    text = "---\nto: ann@example.com\nsubject: Lunch\nstatus: pending_approval\n---\nHello\n\nAnn\n"
    path = office.write("Drafts/d.md", text.replace("\n", newline))
    office.look()
    id = letter_of(path)
    office.move(id, "Approved")
    office.look()
    assert office.state_of(id) == "approved"
    raw = office.note(id).read_bytes()
    assert raw.count(b"\r\n") == (raw.count(b"\n") if newline == "\r\n" else 0)


def test_a_draft_with_the_same_words_is_not_taken_twice(office):
    path = draft(office)
    office.look()
    id = letter_of(path)
    copy = draft(office, where="Drafts/copy.md")
    assert "counts for nothing again" in office.look()
    assert letter_of(copy) == ""
    assert [line.id for line in office.desk.ledger.lines()] == [id]


def test_an_edit_in_the_terminal_of_a_draft_is_written_into_its_note(office):
    path = draft(office)
    office.look()
    entry = office.desk.ledger.entry(letter_of(path))
    edited = office.desk.edit(entry.id, replace(entry.letter, text="Other words.\n"))
    assert office.desk.note_text(edited) == "Other words.\n"
    assert office.desk.edited(edited) == ""


def test_a_letter_proposed_from_a_draft_keeps_its_home(office):
    entry = office.desk.post(SEND, office.letter(), Proposal(home="Drafts", form="note"))
    assert office.where(entry.id) == "Drafts"
    office.move(entry.id, "Approved")
    office.look()
    office.desk.recall(entry.id)
    assert office.where(entry.id) == "Drafts"


# Writing


def test_nothing_half_written_is_left_beside_a_note(office, courier):
    for _ in journey(office, courier, office.propose()):
        left = [p.name for p in office.vault.rglob("*") if p.is_file() and p.suffix == ".tmp"]
        assert left == []


def test_a_persons_file_of_the_same_name_is_never_written_over(office):
    entry = office.approved()
    name = office.note(entry.id).name
    mine = office.write(f"Done/{name}", "mine\n")
    office.desk.send_approved()
    assert mine.read_text() == "mine\n"
    assert office.note(entry.id).name == name.replace(".md", " 2.md")


def test_a_note_says_moments_in_utc(office):
    assert Stamp(START).iso == "2026-11-15T00:00:00Z"


def test_waiting_notes_say_what_counts_after_the_trust_level_has_changed(office):
    entry = office.propose()
    assert "Move this note" in office.head(entry.id)
    office.desk.set_passphrase("correct horse")
    office.reopen(trust="desk")
    office.look()
    assert "A moved note is no verdict here" in office.head(entry.id)
    assert "Trust level: desk" in office.head(entry.id)


def test_the_note_of_a_sent_letter_says_when_and_offers_nothing_to_do(office):
    entry = office.approved()
    office.desk.send_approved()
    assert office.field(entry.id, "sent_at") == "2026-11-15T00:00:10Z"
    assert "What to do" not in titles(office, entry.id)
    assert "postroom undo" not in office.note(entry.id).read_text(encoding="utf-8")


def test_the_note_of_a_rejected_letter_says_how_to_have_it_after_all(office):
    entry = office.propose()
    office.desk.reject(entry.id, by="ada", reason="no")
    assert "Nothing was sent" in office.page(entry.id, "Rollback plan")
    office.move(entry.id, "Approved")
    office.look()
    assert office.state_of(entry.id) == "pending"
    assert "Move this note" in office.head(entry.id)


def test_a_draft_shows_its_risk_card_in_its_frontmatter(office):
    draft = office.write(
        "Drafts/d.md",
        "---\nto: ann@example.com\nsubject: Hi\nstatus: pending_approval\n---\nHello Ann\n",
    )
    office.look()
    found = Note.parse(draft.read_bytes()).text("risk_assessment")
    assert "No person has written to them before: ann@example.com" in found
