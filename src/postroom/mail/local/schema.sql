CREATE TABLE message (
    id INTEGER PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    thread INTEGER NOT NULL,
    size INTEGER NOT NULL,
    labels TEXT NOT NULL,
    people TEXT NOT NULL,
    subject TEXT NOT NULL,
    snippet TEXT NOT NULL,
    attachments INTEGER NOT NULL,
    message_id TEXT NOT NULL
);
CREATE INDEX message_thread ON message (thread);
CREATE TABLE raw (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE reference (id INTEGER PRIMARY KEY, thread INTEGER NOT NULL);
CREATE INDEX reference_thread ON reference (thread);
CREATE TABLE label (key TEXT PRIMARY KEY, name TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, message INTEGER NOT NULL, kind TEXT NOT NULL);
CREATE TABLE draft (id TEXT PRIMARY KEY, message INTEGER NOT NULL UNIQUE, tokens TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE gone (id INTEGER PRIMARY KEY);
CREATE TABLE sent (letter TEXT PRIMARY KEY, message INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE outgoing (letter TEXT, recipient TEXT, PRIMARY KEY (letter, recipient)) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch', lower(hex(randomblob(6))));
CREATE VIRTUAL TABLE word USING fts5(
    body, subject, sender, recipient, cc, bcc, files, marks,
    content = '', columnsize = 0, tokenize = 'ascii'
)
