"""The index of the vault: which notes there are, what they say and link to; and the language to search it in.

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
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from postroom.core.errors import Corrupt, Invalid, PostroomError
from postroom.core.text import one_line, words
from postroom.store.database import Database, discard, read_migrations
from postroom.store.files import locked
from postroom.store.protocol import Row
from postroom.vault.folders import NOTE
from postroom.vault.links import key, mentions, stem
from postroom.vault.markdown import outside_code, titles
from postroom.vault.note import Note, Typed, Value
from postroom.vault.vault import File, Vault

MIGRATIONS: Final = read_migrations(Path(__file__).with_suffix(".sql"))
COLUMNS: Final = ("title", "tags", "headings", "body", "fields", "links")
# The words come last and all together: to FTS5, any other statement is a reason to write them out.
_TABLES: Final = {
    "file": ("id", "folder", "name", "key", "kind", "size", "mtime", "inode", "broken"),
    "field": ("key", "value", "folder", "name"),
    "link": ("key", "file"),
    "word": ("rowid", *COLUMNS),
}
CANVAS: Final = ".canvas"
OTHER, IS_NOTE, IS_CANVAS = 0, 1, 2
WEIGHTS: Final = "8.0, 5.0, 4.0, 1.0, 2.0, 1.0"  # of the columns, for the rank
MAX_TEXT: Final = 1_000_000  # characters of a note that are indexed
MAX_VALUE: Final = 500  # characters of a field that a filter can ask for
PATIENCE: Final = 5.0  # seconds for one query
RACY: Final = 20_000_000  # nanoseconds within which two changes may share one time stamp

_TAG: Final = re.compile(r"#(?<![\w/#&]#)((?:\d|[/-])*+[^\W\d][\w/-]*)")
MAX_TERMS: Final = 32
SIZE: Final = 160  # characters of a snippet
LONGEST: Final = 20  # words of a phrase that are looked for
LOOKED: Final = 200_000  # characters of a note in which the words are looked for
TAGS: Final = frozenset({"tag", "tags"})

_TERM: Final = re.compile(r'(-?)(?:(title|tag|heading|field|link):)?("[^"]*"?|[^\s"]+)(\*?)', re.I)
_JOINTS: Final = frozenset({"AND", "OR", "NOT"})
_COLUMN_OF: Final = {"tag": "tags", "heading": "headings", "field": "fields", "link": "links"}
_CONDITION: Final = re.compile(r'([^:"]++):(.*)', re.S)
_AND: Final = re.compile(r"(?<!\S)AND(?!\S)")
_OTHER: Final = re.compile(r"[*<>=]|.*(?<!\S)(?:OR|NOT)(?!\S)", re.S)  # what a filter is not


class IndexEntry(NamedTuple):
    columns: tuple[str, ...]
    fields: frozenset[tuple[str, str]] = frozenset()
    links: frozenset[str] = frozenset()
    broken: str = ""


class Hit(NamedTuple):
    """A note that matches, as it was when it was indexed."""

    path: str
    file: File


class HitPage(NamedTuple):
    hits: list[Hit]
    total: int  # of the notes that match


def document(path: str, raw: bytes) -> IndexEntry:
    """Return what is indexed of a note; of one that does not parse, its text."""
    try:
        note = Note.parse(raw)
    except Corrupt as why:
        text = raw.decode(errors="replace")[:MAX_TEXT]
        return IndexEntry(_columns(path, body=text), broken=why.message)
    body = note.body[:MAX_TEXT]
    linked = mentions(note.source[:MAX_TEXT], frontmatter=note.head)
    inline = _TAG.findall(outside_code(body)) if _TAG.search(body) else []
    fields = dict(_flat(note.fields))
    columns = _columns(
        path,
        *fields.get("title", ()),
        *fields.get("aliases", ()),
        tags=" ".join([*fields.get("tags", ()), *fields.get("tag", ()), *inline]),
        headings=" \n".join(titles(body)),
        body=body,
        fields=" \n".join(f"{name} {' '.join(texts)}" for name, texts in fields.items()),
        links=" \n".join(linked),
    )
    # As it is written, and as it is shown: 012 is 12.
    pairs = [(name, text) for name, texts in fields.items() for text in texts]
    meant = {name: value for name, value in note.values.items() if not isinstance(value, str)}
    pairs += [(name, text) for name, texts in _flat(meant) for text in texts]
    pairs += [(name, up) for name, text in pairs if name in TAGS for up in _above(text)]
    filters = ((nfc(name), nfc(text)) for name, text in pairs if len(text) <= MAX_VALUE)
    names = (key(stem(target)) for target in linked)
    return IndexEntry(columns, frozenset(filters), frozenset(names))


def _columns(path: str, *titles: str, **texts: str) -> tuple[str, ...]:
    columns = {"title": " ".join([stem(path), *titles]), **texts}
    return tuple(" ".join(words(columns.get(name, ""))) for name in COLUMNS)


def _flat(
    fields: Mapping[str, Value] | Mapping[str, Typed], before: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Yield each field with its texts, those of a list one by one, with dots before inner names."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            items = value if isinstance(value, list) else [value]
            plain = [item for item in items if not isinstance(item, dict | list)]
            yield f"{before}{name}", list(map(_as_text, plain))


def _as_text(value: str | float | None) -> str:
    text = "" if value is None else value
    return text if isinstance(text, str) else json.dumps(text)


def _above(tag: str) -> list[str]:
    """Return the tags that a nested one belongs to, and itself without its sign."""
    parts = tag.lstrip("#").split("/")
    return ["/".join(parts[:size]) for size in range(1, len(parts) + 1)]


class Index:
    """The index on the disk; one process keeps it whole, all may add what they wrote themselves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._generation = 0
        # One process must not delete it while another makes it: they would share a write-ahead log.
        self._opening = path.with_name("index.opening")
        with locked(self._opening):
            try:
                self._db = Database(path, MIGRATIONS)
            except Corrupt:  # it can be rebuilt
                discard(path)
                self._db = Database(path, MIGRATIONS)
            self._inode = path.stat().st_ino

    def renew(self) -> None:
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
        with locked(self._opening):
            try:
                self._db.reopen(anew=anew)
            except Corrupt:
                self._db.reopen(anew=True)
            self._inode = self._path.stat().st_ino
            self._generation += 1

    def close(self) -> None:
        self._db.close()

    def meta(self, name: str) -> str:
        """Return what was kept under a name, or nothing."""
        row = self._db.row("SELECT value FROM meta WHERE key = ?", (name,))
        return str(row[0]) if row else ""

    def keep(self, **values: str) -> None:
        with self._db.write(synced=False) as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def folder(self, folder: str) -> dict[str, tuple[int, int, int]]:
        """Return what is known of the files of a folder."""
        sql = "SELECT name, size, mtime, inode FROM file WHERE folder = ?"
        return {row[0]: row[1:] for row in self._db.rows(sql, (folder,))}

    def folders(self) -> list[str]:
        return [row[0] for row in self._db.rows("SELECT DISTINCT folder FROM file")]

    def refresh(self, vault: Vault, paths: Iterable[str]) -> None:
        places = {path: path.rpartition("/")[::2] for path in paths}
        # Read under the write lock, so that the process that reads last writes last.
        with self._db.write(synced=False) as db:
            ((last,),) = db.execute("SELECT coalesce(max(id), 0) FROM file").fetchall()
            numbers, known = count(last + 1), dict[str, int]()
            for path, place in places.items():
                sql = "DELETE FROM file WHERE folder = ? AND name = ? RETURNING id"
                for (id,) in db.execute(sql, place).fetchall():
                    known[path] = id  # kept: hits of equal rank are listed by it
            rows: dict[str, list[Row]] = {table: [] for table in _TABLES}
            for path, (folder, name) in places.items():
                if found := _look(vault, path):
                    kind, stamp, entry = found
                    number = known.get(path) or next(numbers)
                    file_key = key(stem(path))
                    rows["file"].append(
                        (number, folder, name, file_key, kind, *stamp, entry.broken)
                    )
                    if kind == IS_NOTE:
                        rows["field"] += [(*pair, folder, name) for pair in entry.fields]
                        rows["link"] += [(one, number) for one in entry.links]
                        rows["word"].append((number, *entry.columns))
            for table, columns in _TABLES.items():
                values = ", ".join("?" for _ in columns)
                sql = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({values})"
                db.executemany(sql, sorted(rows[table]))

    def forget(self, folder: str) -> None:
        where, values = _below(folder)
        with self._db.write(synced=False) as db:
            db.execute(f"DELETE FROM file WHERE {where}", values)

    def search(self, match: str, *, limit: int, offset: int) -> HitPage:
        """Return notes that match an expression, the best first."""
        return self._page(
            "word WHERE word MATCH ?",
            [match],
            "SELECT folder, name, size, mtime, inode FROM"
            f" (SELECT rowid AS id, bm25(word, {WEIGHTS}) AS score FROM word WHERE word MATCH ?"
            " ORDER BY score, rowid LIMIT ? OFFSET ?) JOIN file USING (id) ORDER BY score, id",
            (match, limit, offset),
        )

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
        here, _, name = after.rpartition("/")
        return self._page(
            f"{table} WHERE {where}",
            values,
            f"SELECT f.folder, f.name, size, mtime, inode FROM (SELECT folder, name FROM {table}"
            f" WHERE {where} AND (folder, name) > (?, ?) ORDER BY folder, name LIMIT ?) f"
            " JOIN file USING (folder, name) ORDER BY f.folder, f.name",
            [*values, here, name, limit],
        )

    def _page(
        self, counted: str, values: Sequence[object], sql: str, all_values: Sequence[object]
    ) -> HitPage:
        """Return hits and their total as of one moment: another process may write between two queries."""
        with self._db.snapshot():
            total = self._rows(f"SELECT count(*) FROM {counted}", values)[0][0]
            rows = self._rows(sql, all_values)
            return HitPage([Hit(_path(*row[:2]), File(*row[1:])) for row in rows], total)

    def _count(self, pair: tuple[str, str]) -> int:
        sql = "SELECT count(*) FROM field WHERE key = ? AND value = ?"
        return int(self._rows(sql, pair)[0][0])

    def broken(self, folder: str, most: int) -> Sequence[str]:
        """Return some notes in a folder and below that do not parse."""
        where, values = _below(folder)
        return self._paths(f"broken <> '' AND {where} LIMIT ?", *values, most)

    def subfolders(self, folder: str, most: int) -> Sequence[str]:
        """Return the names of the folders in this one that hold notes, further down too."""
        start = f"{folder}/" if folder else ""
        sql = f"SELECT DISTINCT folder FROM file WHERE kind = {IS_NOTE} AND folder > ? AND folder < ? ORDER BY 1"
        rows = self._db.rows(sql, (start, f"{start}\U0010ffff"))
        names = dict.fromkeys(row[0][len(start) :].partition("/")[0] for row in rows)
        return list(names)[:most]

    def named(self, name: str) -> Sequence[str]:
        """Return the files whose stem has this key."""
        return self._paths("key = ?", name)

    def linking(self, name: str) -> Sequence[str]:
        """Return the notes with a link to this key, and every canvas: those are few."""
        linked = "id IN (SELECT file FROM link WHERE key = ?)"
        return self._paths(f"{linked} OR kind = {IS_CANVAS} ORDER BY folder, name", name)

    def _paths(self, where: str, *values: object) -> Sequence[str]:
        rows = self._rows(f"SELECT folder, name FROM file WHERE {where}", values)
        return [_path(*row) for row in rows]

    def _rows(self, sql: str, values: Sequence[object]) -> Sequence[Row]:
        return self._db.rows(sql, values, patience=PATIENCE)


def _look(vault: Vault, path: str) -> tuple[int, tuple[int, ...], IndexEntry] | None:
    """Return a file's kind, its version, and what is indexed of it; None where no file is."""
    kind = {NOTE: IS_NOTE, CANVAS: IS_CANVAS}.get(path[path.rfind(".") :].lower(), OTHER)
    entry, file = IndexEntry(_columns(path)), None
    if kind == IS_NOTE:
        try:
            raw, file = vault.read(path)
            entry = document(path, raw)
        except PostroomError as why:  # gone, too large, or not readable: found by its name
            entry = entry._replace(broken=why.message)
    file = file or next(vault.stats([path]))
    if file is None:
        return None
    is_racy = time.time_ns() - file.mtime_ns < RACY
    return kind, (file.size, 0 if is_racy else file.mtime_ns, file.inode), entry


def _below(folder: str) -> tuple[str, list[object]]:
    if not folder:
        return "1", []
    # All that begins with the name and a slash comes before the name and what follows the slash.
    return "(folder = ? OR (folder >= ? AND folder < ?))", [folder, f"{folder}/", f"{folder}0"]


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def nfc(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def expression(query: str, *, prefixes: bool = False) -> str:
    """Return the FTS5 expression of what people write: words, "phrases", begin*, -without, a OR b.

    `title:`, `tag:`, `heading:`, `field:` and `link:` look there alone. With `prefixes` each word
    may be the beginning of one.
    """
    required, excluded = list[list[str]](), list[str]()  # of the former each has alternatives
    operator = ""
    for match in list(_TERM.finditer(query))[:MAX_TERMS]:
        minus, field, text, star = match.groups()
        if match[0] in _JOINTS and required:
            operator = match[0]
            continue
        tokens = words(text.rstrip("*"))
        if not tokens:
            continue
        begins = "*" if prefixes or star or text.endswith("*") else ""
        column = f"{_COLUMN_OF.get(field.lower(), field.lower())} : " if field else ""
        term = f'{column}"{" ".join(tokens)}"{begins}'
        if minus or operator == "NOT":
            excluded.append(term)
        elif operator == "OR":
            required[-1].append(term)
        else:
            required.append([term])
        operator = ""
    if not required:
        raise Invalid(
            "There is nothing to search for in this query",
            remedy='Give words, a "phrase", or the beginning of a word with * after it.',
        )
    joined = " AND ".join(f"({' OR '.join(terms)})" for terms in required)
    return f"({joined}) NOT ({' OR '.join(excluded)})" if excluded else joined


def terms(query: str) -> Sequence[Sequence[str]]:
    """Return the words of each thing that a query asks for."""
    terms = (match for match in _TERM.finditer(query) if not match[1] and match[0] not in _JOINTS)
    return [tokens for term in terms if (tokens := words(term[3]))]


def conditions(text: str) -> list[tuple[str, str]]:
    """Return the fields and values of a filter, `field:value AND field:value`."""
    pairs: list[tuple[str, str]] = []
    parts: list[str] = []
    for piece in _AND.split(text):
        # An AND inside of quotes is a word of the value.
        if parts and parts[-1].count('"') % 2:
            parts[-1] += f"AND{piece}"
        else:
            parts.append(piece)
    for part in parts:
        match = _CONDITION.fullmatch(part)
        name, value = (match[1].strip(), match[2].strip()) if match else ("", "")
        if not name or name[0] == "-" or " " in name or _OTHER.match(value):
            raise Invalid(
                f"{part.strip()!r} is not a condition of a filter",
                remedy="Write field:value, several with AND between, a value in quotes where need be:"
                ' status:pending AND tags:work AND title:"A, not B".',
            )
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        plain = value[1:-1] if quoted else value
        pairs.append((nfc(name), nfc(plain.lstrip("#") if name in TAGS else plain)))
    return pairs


def snippet(note: Note, terms: Sequence[Sequence[str]]) -> str:
    """Return the first place of the note that has one of these, the body's before a field's."""
    for text in (note.body[:LOOKED], note.source[: note.head]):
        for term in terms:
            if line := _around(text, term[:LONGEST]):
                return line
    return _cut(one_line(note.body[: SIZE * 2].strip()), 0)


def _around(text: str, term: Sequence[str]) -> str:
    if text.isascii():
        # Folding changes no length here, so that the place itself is known.
        pattern = "[^0-9a-z]+".join(map(re.escape, term))
        match = re.search(rf"(?<![0-9a-z]){pattern}", text, re.IGNORECASE)
        if not match:
            return ""
        start = text.rfind("\n", 0, match.start()) + 1
        row = text[start:].partition("\n")[0]
        return _cut(one_line(row), len(one_line(row[: match.start() - start])))
    *first, last = term
    for row in text.splitlines():
        tokens = words(row)
        for at in range(len(tokens) - len(first)):
            if tokens[at : at + len(first)] == first and tokens[at + len(first)].startswith(last):
                plain = one_line(row)
                return _cut(plain, len(plain) * at // len(tokens))
    return ""


def _cut(text: str, at: int) -> str:
    """Return so much of a line as there is room for, with this place in it."""
    if len(text) <= SIZE:
        return text
    start = max(0, min(at - SIZE // 3, len(text) - SIZE + 1))
    before = "…" if start else ""
    piece = text[start : start + SIZE - len(before) - 1]
    return f"{before}{piece}{'…' if start + len(piece) < len(text) else ''}"
