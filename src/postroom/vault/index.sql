-- step 1
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

-- step 2
-- The words come last: to FTS5, any other statement is a reason to write out what it holds.
CREATE TRIGGER file_deleted AFTER DELETE ON file BEGIN DELETE FROM field WHERE folder = old.folder AND name = old.name; DELETE FROM link WHERE file = old.id; DELETE FROM word WHERE rowid = old.id; END
