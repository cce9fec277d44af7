"""Whatever is done to the log files, it is found; wherever a crash tears them, they are mended."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.conftest import examples
from tests.unit.desk.test_log import Desk

DAYS = ["2026-01-05", "2026-01-06", "2026-01-07"]


@contextmanager
def fresh() -> Iterator[Desk]:
    """A desk with a vault of its own."""
    with tempfile.TemporaryDirectory() as root, closing(Desk(Path(root))) as desk:
        yield desk


def torn_at(offset: int, *, batch: int) -> bool:
    """A desk whose process died when this much of the last append was on disk."""
    with fresh() as desk:
        desk.act("2026-01-05", "2026-01-05")
        before, mark = desk.file().stat().st_size, desk.ledger.marked
        for _ in range(batch):
            desk.ledger.act("2026-01-05", target="john.doe@example.com", error="é😀")
        desk.log.write_new_lines()
        appended = desk.file().stat().st_size - before
        with desk.file().open("r+b") as file:
            file.truncate(before + min(offset, appended))
        desk.ledger.marked = mark
        desk.log.write_new_lines()
        desk.act("2026-01-06")
        shown = [*desk.shown("2026-01-05"), *desk.shown("2026-01-06")]
        assert shown == desk.ledger.chain
        assert desk.faults() == []
        return offset < appended


def test_a_line_torn_at_any_byte_is_mended() -> None:
    offset = 0
    while torn_at(offset, batch=1):
        offset += 1
    assert offset > 250


@given(st.integers(0, 3_000), st.integers(2, 4))
def test_a_batch_torn_at_any_byte_is_mended(offset: int, batch: int) -> None:
    torn_at(offset, batch=batch)


@st.composite
def harms(draw: DrawFn) -> tuple[list[str], Callable[[list[bytes]], list[bytes]]]:
    """A log of several days, and the same after one thing was done to its lines."""
    days = sorted(draw(st.lists(st.sampled_from(DAYS), min_size=2, max_size=12)))
    at, other = draw(st.integers(0, len(days) - 1)), draw(st.integers(0, len(days) - 1))

    def edit(lines: list[bytes]) -> list[bytes]:
        line = lines[at]
        place = draw(st.integers(0, len(line) - 1))
        byte = draw(st.integers(0, 255).filter(lambda byte: byte not in (line[place], 10)))
        return [*lines[:at], line[:place] + bytes([byte]) + line[place + 1 :], *lines[at + 1 :]]

    def delete(lines: list[bytes]) -> list[bytes]:
        return [line for place, line in enumerate(lines) if place != at]

    def cut(lines: list[bytes]) -> list[bytes]:
        return lines[:at]

    def repeat(lines: list[bytes]) -> list[bytes]:
        return [*lines[:other], lines[at], *lines[other:]]

    def move(lines: list[bytes]) -> list[bytes]:
        rest = delete(lines)
        return [*rest[:other], lines[at], *rest[other:]]

    def insert(lines: list[bytes]) -> list[bytes]:
        return [*lines[:at], draw(st.binary().filter(lambda raw: b"\n" not in raw)), *lines[at:]]

    return days, draw(st.sampled_from([edit, delete, cut, repeat, move, insert]))


@given(harms())
def test_one_edit_deletion_cut_copy_move_or_insertion_is_always_found(
    harm: tuple[list[str], Callable[[list[bytes]], list[bytes]]],
) -> None:
    days, do = harm
    with fresh() as desk:
        desk.act(*days)
        whole = [line.encode() for line in desk.ledger.chain]
        harmed = do(whole)
        for path in sorted(desk.file().parent.iterdir())[1:]:
            path.unlink()
        desk.file(days[0]).write_bytes(b"".join(line + b"\n" for line in harmed))
        assert bool(desk.faults()) == (harmed != whole)
        assert [
            found.seq for found in desk.log.lines_ahead() if found.line in desk.ledger.chain
        ] == []
        desk.act("2026-01-08")
        assert desk.shown("2026-01-08") == desk.ledger.chain[-1:]


@settings(max_examples=examples(50))
@given(st.dictionaries(st.sampled_from(DAYS), st.binary(max_size=300), min_size=1))
def test_files_of_any_bytes_stop_nothing(files: dict[str, bytes]) -> None:
    with fresh() as desk:
        desk.file().parent.mkdir(parents=True)
        for day, raw in files.items():
            desk.file(day).write_bytes(raw)
        desk.act("2026-01-05", "2026-01-05", "2026-01-07")
        assert desk.log.lines_ahead() == []
        assert [record["seq"] for record in desk.log.records()] == [1, 2, 3]
        assert {what for _, _, what in desk.faults()} <= {"not a line of the log"}


@given(st.integers(0, 10), st.integers(0, 10))
def test_a_ledger_put_back_is_told_exactly_what_it_lost(kept: int, lost: int) -> None:
    with fresh() as desk:
        desk.act(*(DAYS[seq % 3] for seq in range(kept + lost)))
        gone = desk.ledger.chain[kept:]
        del desk.ledger.chain[kept:]
        assert [found.line for found in desk.log.lines_ahead()] == gone
