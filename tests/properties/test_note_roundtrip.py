"""Whatever a note looks like: one key is changed and nothing else, and a fenced text comes back whole."""

import re

from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from postroom.core.errors import Corrupt
from postroom.vault.markdown import fence, quote, sections
from postroom.vault.note import Note, render
from tests.fences import fenced
from tests.narrow import present

letters = st.text("abcxyzüß日😀 -:#'\"", max_size=8)
words = st.text("abcxyzüß日😀", min_size=1, max_size=6)
keys = st.one_of(
    words, words.map(lambda word: f'"{word} {word}"'), words.map(lambda word: f"'{word}'")
)
comments = st.one_of(st.just(""), words.map(lambda word: f" # {word}: x"))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def lines(texts: list[str], before: str) -> str:
    return "".join(f"{before}{text}\n" for text in texts)


many = st.lists(words, min_size=1, max_size=3)
one_line = st.one_of(
    st.just(""),
    st.sampled_from(
        [" ~", " no", " 012", " 2026-01-01", " 12:30", " 18e51234", " []", " {}", " *"[:1]]
    ),
    words.map(lambda text: f" {text}"),
    letters.map(lambda text: f"  {quoted(text)}"),
    letters.map(lambda text: " " + render({"k": text}, "").decode()[7:-5]),
    many.map(lambda texts: f" [{', '.join(texts)}]"),
    many.map(lambda texts: f" {{{', '.join(f'{n}: {text}' for n, text in enumerate(texts))}}}"),
)
several_lines = st.one_of(
    many.map(lambda texts: "\n" + lines(texts, "- ")),
    many.map(lambda texts: "\n" + lines(texts, "    - ")),
    many.map(lambda texts: "\n" + "".join(f"  k{n}: {text}\n" for n, text in enumerate(texts))),
    st.tuples(st.sampled_from([" |", " |-", " >", " >-", " |+"]), many).map(
        lambda both: f"{both[0]}\n{lines(both[1], '  ')}"
    ),
    many.map(lambda texts: f" {texts[0]}\n{lines(texts[1:], '   ')}"),
    many.map(lambda texts: " [\n" + lines([f"{text}," for text in texts], "  ") + "  ]\n"),
    letters.map(lambda text: f" 'a\n  {text.strip().replace(chr(39), chr(39) * 2)} b'\n"),
)
values = st.one_of(
    st.tuples(one_line, comments).map(lambda both: "".join(both) + "\n"), several_lines
)
between = st.sampled_from(["", "", "", "# a comment: of its own\n", "\n", "#\n\n"])
bodies = st.text("ab#-:`~ \n\r😀", max_size=40)


# Names, their lines, what stands between, the newline, the byte order mark, the body.
Pieces = tuple[list[str], list[str], list[str], str, str, str]


@st.composite
def notes(draw: DrawFn) -> Pieces:
    """The pieces of a valid note: each key's own lines and what stands between, and the rest."""
    names = draw(st.lists(keys, max_size=6, unique_by=lambda key: key.strip("\"'")))
    blocks = [f"{name}:{draw(values)}" for name in names]
    gaps = [draw(between) for _ in range(len(names) + 1)]
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return names, blocks, gaps, newline, mark, draw(bodies)


def written(blocks: list[str], gaps: list[str], newline: str, mark: str, body: str) -> bytes:
    head = gaps[0] + "".join(block + gap for block, gap in zip(blocks, gaps[1:], strict=True))
    return f"{mark}---{newline}{head.replace(chr(10), newline)}---{newline}{body}".encode()


@given(notes(), st.integers(0, 5), st.one_of(letters, st.text(max_size=8)))
def test_setting_one_key_changes_its_lines_alone(made: Pieces, which: int, new: str) -> None:
    names, blocks, gaps, newline, mark, body = made
    note = Note.parse(written(blocks, gaps, newline, mark, body))
    assert list(note.fields) == [name.strip("\"'") for name in names]
    which %= len(names) + 1
    if which == len(names):
        after = note.set({"added": new})
        *kept, added = [*blocks, f"added: {render({'k': new}, '').decode()[7:-5]}\n"]
        assert after.raw == written([*kept, added], [*gaps, ""], newline, mark, body)
        assert after.fields == {**note.fields, "added": new}
        return
    name = names[which].strip("\"'")
    assume(note.fields[name] != new)
    after = note.set({name: new})
    assert after.fields == {**note.fields, name: new}
    assert list(after.fields) == list(note.fields)
    before = (
        mark
        + "---\n"
        + gaps[0]
        + "".join(b + g for b, g in zip(blocks[:which], gaps[1:], strict=False))
    )
    behind = "".join(
        g + b for g, b in zip(gaps[which + 1 :], [*blocks[which + 1 :], ""], strict=True)
    )
    text = after.raw.decode()
    assert text.startswith(before.replace("\n", newline))
    assert text.endswith(behind.replace("\n", newline) + f"---{newline}{body}")
    assert note.set({name: new}).set({name: new}).raw == after.raw


@given(notes(), st.integers(0, 5))
def test_removing_one_key_removes_its_lines_alone_or_is_refused(made: Pieces, which: int) -> None:
    names, blocks, gaps, newline, mark, body = made
    assume(names)
    which %= len(names)
    note = Note.parse(written(blocks, gaps, newline, mark, body))
    try:
        after = note.set({names[which].strip("\"'"): None})
    except Corrupt:
        # An empty line behind it would belong to the block text before it.
        assert "|+" in "".join(blocks)
        return
    behind = gaps.pop(which + 1)
    gaps[which] += behind.lstrip("\n") if re.search(r"[|>][-+]?\n", blocks[which]) else behind
    del blocks[which]
    assert after.raw == written(blocks, gaps, newline, mark, body)


@given(notes(), bodies)
def test_another_body_leaves_the_frontmatter_alone(made: Pieces, body: str) -> None:
    _, blocks, gaps, newline, mark, old = made
    raw = written(blocks, gaps, newline, mark, old)
    after = Note.parse(raw).set({}, body)
    assert after.raw.startswith(raw[: len(raw) - len(old.encode())])
    assert after.body == body.replace("\r\n", "\n").replace("\r", "\n")


@given(st.binary(max_size=60).map(lambda inner: b"---\n" + inner + b"\n---\nbody"))
def test_any_bytes_are_a_note_or_a_clear_refusal(raw: bytes) -> None:
    try:
        note = Note.parse(raw)
        assert note.set({"a": "1"}).text("a") == "1"
    except Corrupt as refused:
        assert refused.remedy


@given(
    st.text("ab:-?[]{}|>&*!%@'\"\\#,~ \t\n\r\u2028", max_size=40),
    st.sampled_from("ab"),
    st.sampled_from(["x", None]),
)
def test_any_frontmatter_is_changed_as_asked_or_refused(
    head: str, key: str, new: str | None
) -> None:
    raw = f"---\n{head}\n---\nbody".encode()
    try:
        note = Note.parse(raw)
        after = note.set({key: new})
    except Corrupt:
        return
    wanted = dict(note.fields)
    wanted.pop(key, None)
    assert after.text(key) == (new or "")
    assert {name: value for name, value in after.fields.items() if name != key} == wanted
    assert after.body == note.body


@given(
    st.dictionaries(
        st.text(max_size=10), st.one_of(st.text(), st.lists(st.text(), max_size=3)), max_size=5
    ),
    st.text().map(lambda text: text.replace("\r", "")),
)
def test_a_note_of_ours_is_read_as_it_was_written(
    fields: dict[str, str | list[str]], body: str
) -> None:
    assume("<<" not in fields)
    note = Note.parse(render(fields, body))
    assert note.fields == fields
    assert note.body == body


fences = st.text("`~a \n#t😀", max_size=40).map(lambda text: text.replace("\r", ""))


@given(st.one_of(fences, st.text()), st.text("ab \n", max_size=5))
def test_a_fenced_text_comes_back_whole(text: str, around: str) -> None:
    section = f"## Letter\n{around}\n{fence(text)}\n{around}"
    assert fenced(section) == text
    assert [title for title, _ in sections(section + "\n## End")] == ["", "Letter", "End"]


@given(fences)
def test_sections_joined_are_the_body(body: str) -> None:
    assert "".join(text for _, text in sections(body)) == body


@given(st.text("`a \n=$😀", max_size=20))
def test_a_quoted_line_is_one_piece_of_inline_code(text: str) -> None:
    line = quote(text)
    ticks = present(re.match("`+", line))[0]
    assert line.endswith(ticks)
    assert "\n" not in line
    inside = line[len(ticks) : -len(ticks)]
    assert ticks not in re.findall("`+", inside)
    assert inside[0] != "`" != inside[-1]
    assert not inside.strip().startswith(("=", "$="))
