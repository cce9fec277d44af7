"""Searching, listing and moving notes through the tools, on files that others change too."""

import json
import os
import time
import unicodedata
from functools import partial
from pathlib import Path

import pytest

from tests.agents import ToolAnswer
from tests.narrow import present
from tests.notes import Notes

# Searching


def test_words_phrases_prefixes_and_scripts(notes: Notes) -> None:
    notes.file("Tea/Grün tee.md", "---\naliases: [Sencha]\n---\nThe quiet quince is not quiet.\n")
    notes.file("Tea/Other.md", "A quince, and quiet. #tea/green\n# Heading about kettles\n")
    notes.file("日本/東京タワー.md", "京都の寺は静かです。\n")
    notes.file("Link.md", "See [[Other]] and `#no-tag`.\n")
    one, two, three, four = "Tea/Grün tee.md", "Tea/Other.md", "日本/東京タワー.md", "Link.md"
    notes.found("quince", [one, two])
    for query, paths in {
        '"quiet quince"': [one],
        '"quince and quiet"': [two],
        "QUI* -kettles": [one],
        "grun": [one],
        "sencha": [one],
        "tag:tea": [two],
        "tag:no": [],
        "heading:kettles": [two],
        "title:other": [two],
        "link:other": [four],
        "京都": [three],
        "都の寺": [three],
        "東京": [three],
        "kettles OR sencha": [one, two],
        "field:aliases": [one],
        '"quiet': [two, one],
        "kett": [two],  # no word is this, and one begins so
        "nothing": [],
    }.items():
        assert sorted(notes.found(query)) == sorted(paths), query


def test_a_title_is_worth_more_than_a_word_in_passing(notes: Notes) -> None:
    for n in range(5):
        notes.file(f"{n}.md", f"Something about budgets. {'word ' * 50}")
    notes.file("Deep/Budgets.md", "Nothing.\n")
    notes.listed("", [*(f"{n}.md" for n in range(5)), "Deep/Budgets.md"])
    paths = notes.found("budgets")
    assert (paths[0], len(paths)) == ("Deep/Budgets.md", 6)


@pytest.mark.parametrize("query", ["", " ", "-only", "***", '"', "OR", "()", "日" * 400])
def test_a_query_of_nothing_is_refused_and_none_breaks_the_index(notes: Notes, query: str) -> None:
    said, refused = notes.call("search_notes", query=query)
    assert said["error"] == "parse_error" if refused else said["notes"] == []


def test_a_flood_comes_in_pages_of_eight_kilobytes(notes: Notes) -> None:
    for n in range(120):
        notes.file(f"Folder with a long name/and another/Note number {n:03} \"quoted\" 日本.md", f"common {'日本語 ' * 60} {n}\n")  # fmt: skip
    notes.listed("", None)
    deadline = time.monotonic() + 10
    while notes.done("search_notes", query="common")["total"] < 120:
        assert time.monotonic() < deadline
    for tool, asked in (("search_notes", {"query": "common"}), ("list_notes", {"directory": ""})):
        seen, cursor, pages = [], "", 0
        while True:
            answer = notes.agent.call(tool, **asked, cursor=cursor)
            assert answer.size <= 8_200  # with the envelope
            said = json.loads(answer.text)
            assert said["total"] == 120
            seen += [note["path"] for note in said["notes"]]
            pages += 1
            cursor = said.get("cursor", "")
            if not cursor:
                break
        assert len(seen) == len(set(seen)) == 120
        assert pages > 1
        assert all(len(note.get("snippet") or "") <= 160 for note in said["notes"])


def test_what_others_change_is_seen(notes: Notes) -> None:
    there = notes.file("n.md", "apple\n")
    notes.found("apple", ["n.md"])
    there.write_text("pear\n")
    notes.found("pear", ["n.md"])
    assert notes.found("apple") == []
    there.rename(notes.root / "m.md")
    notes.found("pear", ["m.md"])
    (notes.root / "new" / "deep").mkdir(parents=True)
    notes.file("new/deep/x.md", "pear\n")
    notes.found("pear", ["m.md", "new/deep/x.md"])
    (notes.root / "new").rename(notes.root / "moved")
    notes.found("pear", ["m.md", "moved/deep/x.md"])
    (notes.root / "moved" / "deep" / "x.md").unlink()
    notes.found("pear", ["m.md"])


def test_a_hit_is_of_what_the_file_says_now(notes: Notes) -> None:
    there = notes.file("n.md", "apple\n")
    notes.found("apple", ["n.md"])
    for n in range(20):
        there.write_text(f"pear {n}\n")  # and at once:
        assert notes.found("apple") == []
        there.write_text("apple\n")
        notes.found("apple", ["n.md"])


def test_what_a_tool_wrote_is_found_at_once(notes: Notes) -> None:
    notes.found("nothing", [])
    notes.done("write_note", path="a/b.md", frontmatter={"k": "kiwi"}, body="mango")
    assert notes.found("mango") == notes.listed("a", filter="k:kiwi") == ["a/b.md"]
    notes.done("edit_note", path="a/b.md", append="lychee", set={"k": "fig"})
    assert notes.found("lychee") == ["a/b.md"]
    assert notes.listed("a", filter="k:kiwi") == []
    notes.done("move_note", source="a/b.md", destination="c.md")
    assert notes.found("mango") == ["c.md"]


def test_a_folder_whose_name_begins_as_its_neighbours_is_listed_too(notes: Notes) -> None:
    notes.file("A/x.md", "x")
    notes.file("A/B/y.md", "y")
    notes.file("A C/z.md", "z")
    assert notes.done("list_notes", directory="")["folders"] == ["A", "A C"]


def test_folders_and_unreadable_notes_are_told(notes: Notes) -> None:
    notes.file("A/B/x.md", "x")
    notes.file("A/bad.md", "---\na: [\n---\nmango\n")
    notes.file("C/pic.png", "x")
    notes.file("huge.md", b"x" * 31_000_000)
    assert notes.listed("", ["huge.md", "A/bad.md", "A/B/x.md"])
    said = notes.done("list_notes", directory="")
    assert (said["folders"], said["unreadable"]) == (["A"], ["huge.md", "A/bad.md"])
    assert notes.done("list_notes", directory="A")["folders"] == ["A/B"]
    assert notes.found("mango") == ["A/bad.md"]  # broken, and still found


def test_logs_are_neither_listed_nor_found(notes: Notes) -> None:
    notes.file("Logs/actions/note.md", "mango\n")
    notes.file("x.md", "mango\n")
    notes.found("mango", ["x.md"])
    assert notes.listed("") == ["x.md"]
    assert notes.refused("list_notes", directory="Logs")["error"] == "permission_denied"


def test_links_out_of_the_vault_are_not_searched(notes: Notes, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("mango\n")
    os.symlink(outside, notes.root / "linked")
    os.symlink(outside / "secret.md", notes.root / "one.md")
    notes.file("x.md", "mango\n")
    notes.found("mango", ["x.md"])
    (outside / "later.md").write_text("mango\n")
    notes.file("y.md", "mango\n")
    notes.found("mango", ["x.md", "y.md"])


# Moving


def test_links_follow_the_note(notes: Notes) -> None:
    notes.file("Projects/Plan A.md", "[self](Plan%20A.md) [up](../Top.md) [[Top]]\n")
    holder = notes.file("Top.md", "---\nup: \"[[Plan A]]\"\n---\n[[Plan A]] ![[Plan A#Part|alias]] [m](Projects/Plan%20A.md#x) [[Projects/Plan A]]\n`[[Plan A]]`\n```\n[[Plan A]]\n```\n[[Plan B]]\n")  # fmt: skip
    canvas = notes.file("Board.canvas", '{"nodes":[{"id":"1","type":"file","file":"Projects/Plan A.md"}]}')  # fmt: skip
    pending = notes.file("Pending_Approval/x.md", "[[Plan A]]\n")
    notes.listed("", ["Top.md", "Pending_Approval/x.md", "Projects/Plan A.md"])
    said = notes.done("move_note", source="Projects/Plan A.md", destination="Archive/2026/Old plan.md")  # fmt: skip
    assert (said["moved"], said["links"], said["rewritten"], said["untouched"]) == (
        True,
        8,
        ["Archive/2026/Old plan.md", "Board.canvas", "Top.md"],
        ["Pending_Approval/x.md"],
    )
    assert holder.read_text() == "---\nup: \"[[Old plan]]\"\n---\n[[Old plan]] ![[Old plan#Part|alias]] [m](Archive/2026/Old%20plan.md#x) [[Archive/2026/Old plan]]\n`[[Plan A]]`\n```\n[[Plan A]]\n```\n[[Plan B]]\n"  # fmt: skip
    assert '"file":"Archive/2026/Old plan.md"' in canvas.read_text()
    assert (notes.root / "Archive/2026/Old plan.md").read_text() == "[self](Old%20plan.md) [up](../../Top.md) [[Top]]\n"  # fmt: skip
    assert pending.read_text() == "[[Plan A]]\n"
    assert not (notes.root / "Projects/Plan A.md").exists()


def test_a_link_that_may_mean_another_note_is_left_and_told(notes: Notes) -> None:
    notes.file("A/Same.md", "one\n")
    notes.file("B/Same.md", "two\n")
    holder = notes.file("Top.md", "[[Same]] [[A/Same]]\n")
    notes.listed("", ["Top.md", "A/Same.md", "B/Same.md"])
    said = notes.done("move_note", source="A/Same.md", destination="A/New.md")
    assert said["ambiguous"] == ["Top.md: Same"]
    assert holder.read_text() == "[[Same]] [[A/New]]\n"


def test_a_note_is_not_moved_over_another_nor_into_another_kind(notes: Notes) -> None:
    notes.file("a.md", "a\n")
    notes.file("b.md", "b\n")
    assert notes.refused("move_note", source="a.md", destination="b.md")["error"] == "conflict"
    assert notes.refused("move_note", source="a.md", destination="a.md")["error"] == "conflict"
    (notes.root / "folder").mkdir()
    for wrong in ("a.txt", "folder", "x/"):
        assert notes.refused("move_note", source="a.md", destination=wrong)["error"] in ("parse_error", "permission_denied")  # fmt: skip
    assert (notes.root / "a.md").read_text() + (notes.root / "b.md").read_text() == "a\nb\n"


def test_pictures_move_with_their_embeds(notes: Notes) -> None:
    notes.file("img/a b.png", "png")
    holder = notes.file("n.md", "![[a b.png]] ![x](img/a%20b.png)\n")
    notes.listed("", ["n.md"])
    notes.done("move_note", source="img/a b.png", destination="pictures/c.png")
    assert holder.read_text() == "![[c.png]] ![x](pictures/c.png)\n"


def test_names_are_found_however_they_are_composed(notes: Notes) -> None:
    apart, one = unicodedata.normalize("NFD", "Café/Naïve.md"), unicodedata.normalize("NFC", "Café/Naïve.md")  # fmt: skip
    notes.file(apart, "---\na: 1\n---\nx\n")
    assert notes.done("read_note", path=one)["path"] == apart
    notes.done("edit_note", path=one, set={"a": 2})
    notes.done("write_note", path=one, frontmatter={"a": 3}, body="y\n")
    assert os.listdir(notes.root / apart.partition("/")[0]) == [apart.partition("/")[2]]
    assert notes.listed(one.partition("/")[0]) == [apart]
    assert notes.found("naive", [apart])
    holder = notes.file("t.md", f"[[{unicodedata.normalize('NFC', 'Naïve')}]]\n")
    notes.listed("", ["t.md", apart])
    notes.done("move_note", source=one, destination="Plain.md")
    assert holder.read_text() == "[[Plain]]\n"


def test_a_vault_as_people_have_it(notes: Notes) -> None:
    names = ["📥 Inbox/🧠 ideas.md", "日記/2026/11/十五日.md", "Área/Ünïcödé näme.md", "a/b/c/d/e/f/g/deep.md", "Templates/daily.md"]  # fmt: skip
    for name in names:
        notes.file(name, f"---\ntags: [everywhere]\n---\n# {name}\nmango [[🧠 ideas]]\n")
    notes.file("Board.canvas", '{"nodes":[{"type":"text","text":"mango [[🧠 ideas]]"}]}')
    notes.file("Base.base", "views: []\n")
    notes.file("files/photo.jpg", b"\xff\xd8mango")
    notes.file(".obsidian/app.md", "mango")
    notes.file(".trash/old.md", "mango")
    notes.file("Untitled", "mango")
    (notes.root / os.fsencode(b"bad\xff.md").decode(errors="surrogateescape")).write_text("mango")
    notes.listed("", sorted(names, key=lambda name: name.rpartition("/")[::2]))
    assert sorted(notes.found("mango")) == sorted(names)
    assert sorted(notes.listed("", filter="tags:everywhere")) == sorted(names)
    for name in names:
        assert notes.done("read_note", path=name)["path"] == name
        notes.done("edit_note", path=name, append="more")
    assert notes.done("read_note", path="Board.canvas")["frontmatter"] == {}
    assert notes.refused("read_note", path="files/photo.jpg")["error"] == "parse_error"
    said = notes.done("move_note", source=names[0], destination="📦 Archive/💡.md")
    assert said["links"] == 6
    assert "[[💡]]" in (notes.root / names[1]).read_text()
    assert "[[💡]]" in (notes.root / "Board.canvas").read_text()


def test_the_first_use_says_how_far_the_index_is(notes: Notes) -> None:
    for n in range(1_200):
        notes.file(f"{n % 7}/{n}.md", f"note {n}\n" + "word " * 200)
    told: list[tuple[float, float, str]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, present(total), present(message)))

    asked = partial(notes.agent.client.call_tool, "search_notes", {"query": "note"}, progress_callback=hear)  # fmt: skip
    answer = ToolAnswer(notes.agent.portal.call(asked)).values
    assert answer["total"] == 1_200
    assert {message for _, _, message in told} == {"Indexing the vault"}
    assert told == sorted(told)
    assert {total for progress, total, _ in told if progress} <= {1_200}


def test_a_file_that_begins_with_a_dot_is_never_found(notes: Notes) -> None:
    notes.file("x.md", "mango")
    notes.found("mango", ["x.md"])
    notes.file(".hidden.md", "mango")
    notes.file("y.md", "mango")
    notes.found("mango", ["x.md", "y.md"])
    assert notes.found("hidden") == []


@pytest.mark.parametrize(
    "wanted",
    ["status:a OR status:b", "NOT status:a", "-status:a", "status:*", "n:>5", "tags:web AND", "AND", "a b:c"],
)  # fmt: skip
def test_what_a_filter_cannot_say_is_refused_with_what_it_can(notes: Notes, wanted: str) -> None:
    error = notes.refused("list_notes", directory="", filter=wanted)
    assert error["error"] == "parse_error"
    assert "status:pending AND tags:work" in error["details"]["remedy"]


def test_filters_take_a_value_as_it_is_shown_and_tags_by_what_they_belong_to(notes: Notes) -> None:
    notes.file("n.md", '---\nzip: 01234\np: 0.40\ndone: True\ntags: [client/acme]\nt: "A AND b"\n---\n')  # fmt: skip
    notes.listed("", ["n.md"])
    for wanted in ("zip:01234", "zip:1234", "p:0.4", "done:true", "done:True", "tags:client", "tags:#client/acme", 't:"A AND b" AND zip:1234'):  # fmt: skip
        assert notes.listed("", filter=wanted) == ["n.md"], wanted
    for wanted in ("tags:acme", "done:TRUE", "zip:123"):
        assert notes.listed("", filter=wanted) == [], wanted


def test_a_snippet_shows_the_hit(notes: Notes) -> None:
    notes.file("t.md", "# ไทย\nเมือง กรุงเทพ ใหญ่\n")
    notes.file("p.md", "---\nemail: anna@example.org\n---\n# Anna Müller\nanna here\n")
    notes.listed("", ["p.md", "t.md"])
    for query, shown in {
        "กรุงเทพ": "เมือง กรุงเทพ ใหญ่",
        "anna@example.org": "email: anna@example.org",
        "quince NOT anna OR muller": "# Anna Müller",
    }.items():
        said = notes.done("search_notes", query=query)
        if query.startswith("quince"):
            assert said["notes"] == []
            assert said["hint"]
        else:
            assert [note["snippet"] for note in said["notes"]] == [shown]
