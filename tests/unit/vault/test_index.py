"""The index of the vault's notes, without the process that keeps it current."""

from contextlib import closing
from pathlib import Path

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
