"""The index of the vault's notes, without the process that keeps it current."""

from contextlib import closing
from pathlib import Path
from threading import Event, Thread

from postroom.vault.index import Index
from postroom.vault.vault import Vault


def test_a_note_that_changes_keeps_its_place_among_hits_of_equal_rank(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    root.mkdir()
    paths = [f"{name}.md" for name in "abc"]
    for path in paths:
        (root / path).write_text("tea\n")
    with closing(Vault(root)) as vault, closing(Index(tmp_path / "index")) as index:
        index.refresh(vault, paths)
        (root / "a.md").write_text("tea!\n")
        index.refresh(vault, ["a.md"])
        assert [hit.path for hit in index.search("tea", limit=3, offset=0).hits] == paths


def test_hits_and_their_total_are_of_one_moment(tmp_path: Path) -> None:
    root = tmp_path / "vault"
    root.mkdir()
    note = root / "a.md"
    ended = Event()

    def change() -> None:
        with closing(Vault(root)) as vault, closing(Index(tmp_path / "index")) as index:
            while not ended.is_set():
                note.write_text("---\nkind: tea\n---\ntea\n")
                index.refresh(vault, ["a.md"])
                note.unlink()
                index.refresh(vault, ["a.md"])

    with closing(Index(tmp_path / "index")) as index:
        writer = Thread(target=change)
        writer.start()
        try:
            for _ in range(300):
                found = index.search("tea", limit=3, offset=0)
                listed = index.list("", [("kind", "tea")], limit=3, after="")
                assert (len(found.hits), len(listed.hits)) == (found.total, listed.total)
        finally:
            ended.set()
            writer.join()
