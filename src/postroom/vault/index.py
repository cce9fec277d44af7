"""The index of the vault: which notes there are, what they say, and what they link to.

It holds nothing that the files do not say: it may be deleted at any time, and is then rebuilt. Words are
those of `core.text.words`, so that case, width and diacritics make no difference, and a script
without spaces is found character by character; FTS5's own tokenizer only splits them at the spaces.
The words stay in the table beside the index, since FTS5 needs them again to delete a note.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from postroom.core.errors import Corrupt, PostroomError
from postroom.core.text import words
from postroom.store.database import Database, Row, discard
from postroom.store.locks import locked
from postroom.vault.access import NOTE
from postroom.vault.links import key, mentions, stem
from postroom.vault.markdown import outside_code, titles
from postroom.vault.note import Note, Typed, Value
from postroom.vault.search import TAGS, nfc
from postroom.vault.vault import File, Vault

if TYPE_CHECKING:
    from sqlite3 import Connection

MIGRATIONS = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE file (
    id INTEGER PRIMARY KEY, folder TEXT NOT NULL, name TEXT NOT NULL, key TEXT NOT NULL,
    kind INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, inode INTEGER NOT NULL,
    broken TEXT NOT NULL, UNIQUE (folder, name)
);
CREATE INDEX file_key ON file (key);
CREATE INDEX file_kind ON file (kind, folder, name);
CREATE INDEX file_broken ON file (folder, name) WHERE broken <> '';
CREATE TABLE field (
    key TEXT, value TEXT, folder TEXT, name TEXT, PRIMARY KEY (key, value, folder, name)
) WITHOUT ROWID;
CREATE INDEX field_file ON field (folder, name);
CREATE TABLE link (key TEXT, file INTEGER, PRIMARY KEY (key, file)) WITHOUT ROWID;
CREATE INDEX link_file ON link (file);
CREATE VIRTUAL TABLE word USING fts5(
    title, tags, headings, body, fields, links, tokenize = 'ascii'
);
INSERT INTO word (word, rank) VALUES ('hashsize', 8388608)
""",
)
COLUMNS: Final = ("title", "tags", "headings", "body", "fields", "links")
CANVAS: Final = ".canvas"
OTHER, IS_NOTE, IS_CANVAS = 0, 1, 2
WEIGHTS: Final = "8.0, 5.0, 4.0, 1.0, 2.0, 1.0"  # of the columns, for the rank
MAX_TEXT: Final = 1_000_000  # characters of a note that are indexed
MAX_VALUE: Final = 500  # characters of a field that a filter can ask for
PATIENCE: Final = 5.0  # seconds for one query
RACY: Final = 20_000_000  # nanoseconds within which two changes may share one time stamp

_TAG: Final = re.compile(r"#(?<![\w/#&]#)((?:\d|[/-])*+[^\W\d][\w/-]*)")


class IndexEntry(NamedTuple):
    """A note as the index takes it."""

    columns: tuple[str, ...]
    fields: frozenset[tuple[str, str]]
    links: frozenset[str]
    broken: str = ""


class Hit(NamedTuple):
    """A note that matches, as it was when it was indexed."""

    path: str
    file: File


class HitPage(NamedTuple):
    """Some of the notes that match, and how many there are."""

    hits: list[Hit]
    total: int


def document(path: str, raw: bytes) -> IndexEntry:
    """Return what is indexed of a note; of one that does not parse, its text."""
    try:
        note = Note.parse(raw)
    except Corrupt as why:
        text = raw.decode(errors="replace")[:MAX_TEXT]
        return IndexEntry(_columns(path, body=text), frozenset(), frozenset(), why.message)
    body = note.body[:MAX_TEXT]
    linked = mentions(note.source[:MAX_TEXT], frontmatter=note.head)
    fields = dict(_flat(note.fields))
    columns = _columns(
        path,
        *fields.get("title", ()),
        *fields.get("aliases", ()),
        tags=" ".join([*fields.get("tags", ()), *fields.get("tag", ()), *_tags(body)]),
        headings=" \n".join(titles(body)),
        body=body,
        fields=" \n".join(f"{name} {' '.join(texts)}" for name, texts in fields.items()),
        links=" \n".join(linked),
    )
    # As it is written, and as it is shown: 012 is 12.
    pairs = [(name, text) for name, texts in fields.items() for text in texts]
    meant: Typed = {k: v for k, v in note.values.items() if not isinstance(v, str)}
    pairs += [(name, text) for name, texts in _flat(_as_texts(meant)) for text in texts]
    pairs += [(name, up) for name, text in pairs if name in TAGS for up in _above(text)]
    filters = ((nfc(name), nfc(text)) for name, text in pairs if len(text) <= MAX_VALUE)
    names = (key(stem(target)) for target in linked)
    return IndexEntry(columns, frozenset(filters), frozenset(names))


def _columns(path: str, *titles: str, **texts: str) -> tuple[str, ...]:
    """Return the words of each column of the index."""
    columns = {"title": " ".join([stem(path), *titles]), **texts}
    return tuple(" ".join(words(columns.get(name, ""))) for name in COLUMNS)


def _flat(fields: Mapping[str, Value], before: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each field with its texts, those of a list one by one, with dots before inner names."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            items = value if isinstance(value, list) else [value]
            yield f"{before}{name}", [item for item in items if isinstance(item, str)]


def _as_texts(value: Typed) -> Any:  # noqa: ANN401 - the same in texts
    if isinstance(value, dict):
        return {name: _as_texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_texts(inner) for inner in value]
    return value if isinstance(value, str) else json.dumps(value) if value is not None else ""


def _above(tag: str) -> list[str]:
    """Return the tags that a nested one belongs to, and itself without its sign."""
    parts = tag.lstrip("#").split("/")
    return ["/".join(parts[:size]) for size in range(1, len(parts) + 1)]


def _tags(body: str) -> list[str]:
    return _TAG.findall(outside_code(body)) if _TAG.search(body) else []


class Index:
    """The index on the disk; one process keeps it whole, all may add what they wrote themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._generation = 0
        # One process must not delete it while another makes it: they would share a write-ahead log.
        with self._opening():
            try:
                self._db = Database(path, MIGRATIONS)
            except Corrupt:  # it can be rebuilt
                discard(path)
                self._db = Database(path, MIGRATIONS)
            self._inode = path.stat().st_ino

    def _opening(self) -> AbstractContextManager[None]:
        return locked(self._path.with_name("index.opening"))

    def renew(self) -> None:
        """Begin anew, without what is damaged."""
        with self._turn:
            self._reopen(anew=True)

    def generation(self) -> int:
        """Return another number after it was deleted or begun anew; it is then opened as it is now."""
        with self._turn:
            inode = -1
            with suppress(FileNotFoundError):
                inode = self._path.stat().st_ino
            if inode != self._inode:
                self._reopen()
            return self._generation

    def _reopen(self, *, anew: bool = False) -> None:
        with self._opening():
            try:
                self._db.reopen(anew=anew)
            except Corrupt:
                self._db.reopen(anew=True)
            self._inode = self._path.stat().st_ino
            self._generation += 1

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def meta(self, name: str) -> str:
        """Return what was kept under a name, or nothing."""
        row = self._db.row("SELECT value FROM meta WHERE key = ?", (name,))
        return str(row[0]) if row else ""

    def keep(self, **values: str) -> None:
        """Keep these under their names."""
        with self._db.write(synced=False) as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    # Keeping it

    def folder(self, folder: str) -> dict[str, tuple[int, int, int]]:
        """Return what is known of the files of a folder."""
        sql = "SELECT name, size, mtime, inode FROM file WHERE folder = ?"
        return {row[0]: row[1:] for row in self._db.rows(sql, (folder,))}

    def folders(self) -> list[str]:
        """Return the folders that files are known of."""
        return [row[0] for row in self._db.rows("SELECT DISTINCT folder FROM file")]

    def refresh(self, vault: Vault, paths: Iterable[str]) -> None:
        """Take in these files as they are now."""
        # Read under the write lock, so that the process that reads last writes last.
        with self._db.write(synced=False) as db:
            _refresh(db, vault, paths)

    def forget(self, folder: str) -> None:
        """Forget all files below a folder that is no more."""
        where, values = _below(folder)
        rows = self._db.rows(f"SELECT folder, name FROM file WHERE {where}", values)
        with self._db.write(synced=False) as db:
            for row in rows:
                _forget(db, *row)

    # Asking it

    def search(self, match: str, *, limit: int, offset: int) -> HitPage:
        """Return notes that match an expression, the best first."""
        total = self._rows("SELECT count(*) FROM word WHERE word MATCH ?", (match,))[0][0]
        rows = self._rows(
            "SELECT folder, name, size, mtime, inode FROM"
            f" (SELECT rowid AS id, bm25(word, {WEIGHTS}) AS score FROM word WHERE word MATCH ?"
            " ORDER BY score, rowid LIMIT ? OFFSET ?) JOIN file USING (id) ORDER BY score, id",
            (match, limit, offset),
        )
        return HitPage(list(map(_hit, rows)), total)

    def list(
        self, folder: str, pairs: Sequence[tuple[str, str]], *, limit: int, after: str
    ) -> HitPage:
        """Return the notes in a folder and below whose fields have these values, by path."""
        where, values = _below(folder)
        table = "file"
        if pairs:
            first, *others = sorted(pairs, key=self._count)
            table, where = "field a", f"a.key = ? AND a.value = ? AND {where}"
            values = [*first, *values]
            for other in others:
                where += (
                    " AND EXISTS (SELECT 1 FROM field b WHERE b.key = ? AND b.value = ?"
                    " AND b.folder = a.folder AND b.name = a.name)"
                )
                values += other
        else:
            where = f"kind = {IS_NOTE} AND {where}"
        total = self._rows(f"SELECT count(*) FROM {table} WHERE {where}", values)[0][0]
        here, _, name = after.rpartition("/")
        rows = self._rows(
            f"SELECT f.folder, f.name, size, mtime, inode FROM (SELECT folder, name FROM {table}"
            f" WHERE {where} AND (folder, name) > (?, ?) ORDER BY folder, name LIMIT ?) f"
            " JOIN file USING (folder, name) ORDER BY f.folder, f.name",
            [*values, here, name, limit],
        )
        return HitPage(list(map(_hit, rows)), total)

    def _count(self, pair: tuple[str, str]) -> int:
        sql = "SELECT count(*) FROM field WHERE key = ? AND value = ?"
        return int(self._rows(sql, pair)[0][0])

    def broken(self, folder: str, most: int) -> Sequence[tuple[str, str]]:
        """Return some notes in a folder and below that do not parse, and why."""
        where, values = _below(folder)
        sql = f"SELECT folder, name, broken FROM file WHERE broken <> '' AND {where} LIMIT ?"
        return [(_path(*row[:2]), row[2]) for row in self._rows(sql, [*values, most])]

    def subfolders(self, folder: str, most: int) -> Sequence[str]:
        """Return the names of the folders in this one that hold notes, further down too."""
        start = f"{folder}/" if folder else ""
        names: list[str] = []
        after = start
        while len(names) < most:
            sql = "SELECT min(folder) FROM file WHERE kind = 1 AND folder > ? AND folder < ?"
            row = self._db.row(sql, (after, f"{start}\U0010ffff"))
            if row is None or row[0] is None:
                break
            name = row[0][len(start) :].partition("/")[0]
            names.append(name)
            after = f"{start}{name}/\U0010ffff"
        return names

    def named(self, name: str) -> Sequence[str]:
        """Return the files whose stem has this key."""
        rows = self._db.rows("SELECT folder, name FROM file WHERE key = ?", (name,))
        return [_path(*row) for row in rows]

    def linking(self, name: str) -> Sequence[str]:
        """Return the notes with a link to this key, and every canvas: those are few."""
        rows = self._db.rows(
            "SELECT folder, name FROM file WHERE id IN (SELECT file FROM link WHERE key = ?)"
            f" OR kind = {IS_CANVAS} ORDER BY folder, name",
            (name,),
        )
        return [_path(*row) for row in rows]

    def _rows(self, sql: str, values: Sequence[object]) -> Sequence[Row]:
        return self._db.rows(sql, values, patience=PATIENCE)


def _refresh(db: Connection, vault: Vault, paths: Iterable[str]) -> None:
    # The words last and all together: to FTS5, any other statement is a reason to write them out.
    fields: list[Row] = []
    linked: list[Row] = []
    columns: list[Row] = []
    for path in dict.fromkeys(paths):
        folder, _, name = path.rpartition("/")
        kind, file = _kind(name), None
        entry = IndexEntry(_columns(path), frozenset(), frozenset())
        if kind == IS_NOTE:
            try:
                raw, file = vault.read(path)
                entry = document(path, raw)
            except PostroomError as why:  # gone, too large, or not readable: found by its name
                entry = entry._replace(broken=why.message)
        file = file or next(vault.stats([path]))
        old = _forget(db, folder, name)
        if file is None:
            continue
        is_racy = time.time_ns() - file.mtime_ns < RACY
        stamp = (file.size, 0 if is_racy else file.mtime_ns, file.inode)
        id = db.execute(
            "INSERT INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (old, folder, name, key(stem(path)), kind, *stamp, entry.broken),
        ).lastrowid
        if kind == IS_NOTE:
            fields += [(*pair, folder, name) for pair in entry.fields]
            linked += [(one, id) for one in entry.links]
            columns.append((id, *entry.columns))
    db.executemany("INSERT OR IGNORE INTO field VALUES (?, ?, ?, ?)", sorted(fields))
    db.executemany("INSERT INTO link VALUES (?, ?)", sorted(linked))
    names = ", ".join(["rowid", *COLUMNS])
    db.executemany(f"INSERT INTO word ({names}) VALUES (?, ?, ?, ?, ?, ?, ?)", columns)


def _forget(db: Connection, folder: str, name: str) -> int | None:
    """Forget a file, and return the number that it had."""
    where = "folder = ? AND name = ?"
    row = db.execute(f"SELECT id FROM file WHERE {where}", (folder, name)).fetchone()
    if row is None:
        return None
    db.execute("DELETE FROM file WHERE id = ?", row)
    db.execute("DELETE FROM word WHERE rowid = ?", row)
    db.execute("DELETE FROM link WHERE file = ?", row)
    db.execute(f"DELETE FROM field WHERE {where}", (folder, name))
    return int(row[0])


def _kind(name: str) -> int:
    end = name[name.rfind(".") :].lower()
    return {NOTE: IS_NOTE, CANVAS: IS_CANVAS}.get(end, OTHER)


def _below(folder: str) -> tuple[str, list[object]]:
    """Return the condition for a folder and all below it."""
    if not folder:
        return "1", []
    # All that begins with the name and a slash comes before the name and what follows the slash.
    return "(folder = ? OR (folder >= ? AND folder < ?))", [folder, f"{folder}/", f"{folder}0"]


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _hit(row: Row) -> Hit:
    folder, name, *stamp = row
    return Hit(_path(folder, name), File(name, *stamp))
