-- step 1
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE letter (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    content_key TEXT NOT NULL,
    text_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    frozen TEXT NOT NULL,
    origins TEXT NOT NULL,
    recipients TEXT NOT NULL,
    subject TEXT NOT NULL,
    card TEXT NOT NULL,
    home TEXT NOT NULL,
    form TEXT NOT NULL,
    replaces TEXT NOT NULL,
    created TEXT NOT NULL,
    state TEXT NOT NULL,
    detail TEXT NOT NULL,
    version INTEGER NOT NULL
);
CREATE INDEX letter_content ON letter (agent, content_key);
CREATE INDEX letter_text ON letter (text_key);
CREATE INDEX letter_agent ON letter (agent, row);
CREATE INDEX letter_state ON letter (state, row);
CREATE TABLE enclosure (
    letter TEXT NOT NULL, place INTEGER NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
    content BLOB NOT NULL, PRIMARY KEY (letter, place)
);
CREATE TABLE history (
    letter TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL, detail TEXT NOT NULL,
    PRIMARY KEY (letter, version)
) WITHOUT ROWID;
CREATE TABLE revision (
    letter TEXT NOT NULL, version INTEGER NOT NULL, frozen TEXT NOT NULL,
    PRIMARY KEY (letter, version)
) WITHOUT ROWID;
CREATE TABLE idempotency (
    agent TEXT NOT NULL, key TEXT NOT NULL, letter TEXT NOT NULL, content_key TEXT NOT NULL,
    PRIMARY KEY (agent, key)
) WITHOUT ROWID;
CREATE TABLE spent (
    letter TEXT NOT NULL, at TEXT NOT NULL, recipients INTEGER NOT NULL, thread TEXT NOT NULL
);
CREATE TABLE slip (
    hash TEXT PRIMARY KEY, seen TEXT NOT NULL, letter TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE note (
    letter TEXT PRIMARY KEY, path TEXT NOT NULL, hash TEXT NOT NULL, notice TEXT NOT NULL,
    pages TEXT NOT NULL, version INTEGER NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,
    inode INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX note_path ON note (path);
CREATE TABLE adopted (hash TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE action (seq INTEGER PRIMARY KEY, line TEXT NOT NULL);
CREATE TABLE token (
    token TEXT PRIMARY KEY, place TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE contact (
    account TEXT NOT NULL, domain TEXT NOT NULL, PRIMARY KEY (account, domain)
) WITHOUT ROWID;

-- step 2
CREATE TABLE claim (
    row INTEGER PRIMARY KEY, letter TEXT NOT NULL, recipients INTEGER NOT NULL,
    thread TEXT NOT NULL, wall REAL NOT NULL, boot TEXT NOT NULL, steady REAL NOT NULL
);
INSERT INTO claim SELECT NULL, letter, recipients, thread, json_extract(at, '$[0]'),
    json_extract(at, '$[1]'), json_extract(at, '$[2]') FROM spent ORDER BY rowid;
DROP TABLE spent;
CREATE INDEX claim_wall ON claim (wall);
CREATE INDEX claim_steady ON claim (boot, steady);

-- step 3
CREATE TABLE drafted (
    account TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, agent TEXT NOT NULL,
    PRIMARY KEY (account, id)
) WITHOUT ROWID;
CREATE TABLE move (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, agent TEXT NOT NULL, account TEXT NOT NULL,
    message TEXT NOT NULL, added TEXT NOT NULL, removed TEXT NOT NULL
);

-- step 4
CREATE TABLE proof (
    letter TEXT PRIMARY KEY, proof TEXT NOT NULL, digest TEXT NOT NULL, releasing INTEGER NOT NULL
) WITHOUT ROWID;

-- step 5
CREATE TABLE errand (
    row INTEGER PRIMARY KEY, account TEXT NOT NULL, message TEXT NOT NULL,
    thread TEXT NOT NULL DEFAULT '', state TEXT NOT NULL, facts TEXT NOT NULL DEFAULT '',
    judgement TEXT NOT NULL DEFAULT '', by TEXT NOT NULL DEFAULT '', letter TEXT NOT NULL DEFAULT '',
    wish TEXT NOT NULL DEFAULT '', held TEXT NOT NULL DEFAULT '', tries INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0, seen REAL NOT NULL, changed REAL NOT NULL, version INTEGER NOT NULL DEFAULT 0,
    unshown INTEGER NOT NULL DEFAULT 0, UNIQUE (account, message)
);
CREATE INDEX errand_state ON errand (state, row);
CREATE INDEX errand_letter ON errand (letter) WHERE letter != '';
CREATE INDEX errand_unshown ON errand (row) WHERE unshown;
CREATE TABLE drafting (
    letter TEXT PRIMARY KEY, account TEXT NOT NULL, thread TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX drafting_thread ON drafting (account, thread);

-- step 6
CREATE TABLE ticket (
    row INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, person TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE visit (
    row INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, person TEXT NOT NULL, at REAL NOT NULL
);

-- step 7
ALTER TABLE move ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE move ADD COLUMN steady REAL NOT NULL DEFAULT 0;

-- step 8
-- Letters whose HTML part was not built from the strict subset; `keyed` once their content key is that of what was.
CREATE TABLE old_html (letter TEXT PRIMARY KEY, keyed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;
INSERT INTO old_html (letter) SELECT id FROM letter WHERE instr(frozen, '"html": ""') = 0;

-- step 9
-- Whether a send by an older proof had no answer was not kept: it counts as one that had none.
ALTER TABLE proof RENAME COLUMN releasing TO unanswered;
UPDATE proof SET unanswered = 1;

-- step 10
-- Every file that a tool wrote, moved or rewrote. A ledger that was in use before has no rows for
-- what tools wrote until now, so the time is kept before which any note may be a tool's.
CREATE TABLE tool_note (
    row INTEGER PRIMARY KEY, path TEXT NOT NULL, stem TEXT NOT NULL, inode INTEGER NOT NULL,
    text_hash TEXT NOT NULL, agent TEXT NOT NULL, at REAL NOT NULL, UNIQUE (path, text_hash, inode)
);
CREATE INDEX tool_note_stem ON tool_note (stem);
CREATE INDEX tool_note_inode ON tool_note (inode) WHERE inode != 0;
CREATE INDEX tool_note_text ON tool_note (text_hash);
INSERT INTO tool_note
    SELECT NULL, path, lower(substr(name, 1, length(name) - 3)), 0, text_hash, agent, 0 FROM (
        SELECT path, replace(path, rtrim(path, replace(path, '/', '')), '') AS name, text_hash, agent
        FROM (SELECT substr(key, 6) AS path, substr(value, 1, 16) AS text_hash,
            substr(value, 18) AS agent FROM meta WHERE key >= 'made ' AND key < 'made!'));
DELETE FROM meta WHERE key >= 'made ' AND key < 'made!';
INSERT INTO meta SELECT 'tool notes since', CAST(strftime('%s', 'now') + 1 AS TEXT)
    WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'desk');
ALTER TABLE adopted ADD COLUMN agent TEXT;
ALTER TABLE adopted ADD COLUMN letters TEXT NOT NULL DEFAULT '[]';
UPDATE letter SET form = 'note' WHERE form = 'draft' AND agent NOT IN ('person', 'vault');
DELETE FROM meta WHERE key = 'noted';

-- step 11
CREATE TABLE shown_mail (
    row INTEGER PRIMARY KEY, account TEXT NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL,
    subject TEXT NOT NULL, date REAL NOT NULL, sent INTEGER NOT NULL, last_at REAL NOT NULL,
    UNIQUE (account, id)
);
CREATE TABLE exposure (
    token TEXT NOT NULL, message INTEGER NOT NULL, sender TEXT NOT NULL, part TEXT NOT NULL,
    first_at REAL NOT NULL, last_at REAL NOT NULL, PRIMARY KEY (token, message, part)
) WITHOUT ROWID;
INSERT INTO shown_mail SELECT NULL, '', id, max(sender), '', 0, 0, max(at) FROM (
    SELECT substr(place, 6, instr(place, ' from ') - 6) AS id, at,
    CASE WHEN place LIKE '% from a file of it, %' THEN ''
    ELSE substr(place, instr(place, ' from ') + 6) END AS sender FROM token
) GROUP BY id;
INSERT INTO exposure SELECT token, shown_mail.row, sender, '', at, at FROM token
    JOIN shown_mail ON id = substr(place, 6, instr(place, ' from ') - 6);
DROP TABLE token;
CREATE TABLE correspondent (
    account TEXT NOT NULL, address TEXT NOT NULL, PRIMARY KEY (account, address)
) WITHOUT ROWID;
INSERT INTO correspondent SELECT account, '@' || domain FROM contact;
DROP TABLE contact;
DELETE FROM meta WHERE key LIKE 'contacts.%';

-- step 12
-- SqlSettings, cursors and intents that were texts under keys get columns and tables of their own;
-- what lists and charts look for gets columns, and tables get the names of their nouns.
CREATE TABLE desk (
    desk_id TEXT NOT NULL DEFAULT '', ledger_id TEXT NOT NULL DEFAULT '',
    machine TEXT NOT NULL DEFAULT '', state_inode TEXT NOT NULL DEFAULT '',
    room TEXT NOT NULL DEFAULT '', passphrase TEXT NOT NULL DEFAULT '',
    trust TEXT NOT NULL DEFAULT '', approval_required INTEGER NOT NULL DEFAULT 0,
    page_address TEXT NOT NULL DEFAULT '', seal_key TEXT NOT NULL DEFAULT '',
    log_seq INTEGER NOT NULL DEFAULT 0, log_name TEXT NOT NULL DEFAULT '',
    log_size INTEGER NOT NULL DEFAULT 0, log_changed INTEGER NOT NULL DEFAULT 0,
    notes_trust TEXT NOT NULL DEFAULT '',
    rejected_changed INTEGER NOT NULL DEFAULT 0, restored TEXT NOT NULL DEFAULT '',
    tool_notes_since REAL NOT NULL DEFAULT 0, last_finished TEXT NOT NULL DEFAULT '',
    sync_count INTEGER NOT NULL DEFAULT 0
);
INSERT INTO desk SELECT
    coalesce(max(CASE key WHEN 'desk' THEN value END), ''),
    coalesce(max(CASE key WHEN 'id' THEN value END), ''),
    coalesce(max(CASE key WHEN 'machine' THEN value END), ''),
    coalesce(max(CASE key WHEN 'inode' THEN value END), ''),
    coalesce(max(CASE key WHEN 'room' THEN value END), ''),
    coalesce(max(CASE key WHEN 'passphrase' THEN value END), ''),
    coalesce(max(CASE key WHEN 'trust' THEN value END), ''),
    coalesce(max(CASE key WHEN 'required' THEN value = 'true' END), 0),
    coalesce(max(CASE key WHEN 'page' THEN value END), ''),
    coalesce(max(CASE key WHEN 'key' THEN value END), ''),
    coalesce(max(CASE WHEN key = 'log' AND value != '' THEN json_extract(value, '$[0]') END), 0),
    coalesce(max(CASE WHEN key = 'log' AND value != '' THEN json_extract(value, '$[1]') END), ''),
    coalesce(max(CASE WHEN key = 'log' AND value != '' THEN json_extract(value, '$[2]') END), 0),
    coalesce(max(CASE WHEN key = 'log' AND value != '' THEN json_extract(value, '$[3]') END), 0),
    coalesce(max(CASE key WHEN 'noted' THEN value END), ''),
    coalesce(max(CASE key WHEN 'rejected' THEN CAST(value AS INTEGER) END), 0),
    coalesce(max(CASE key WHEN 'distrusted' THEN value END), ''),
    coalesce(max(CASE key WHEN 'tool notes since' THEN CAST(value AS REAL) END), 0),
    coalesce(max(CASE key WHEN 'once' THEN value END), ''), 0 FROM meta;
CREATE TABLE new_note (
    letter TEXT PRIMARY KEY, path TEXT NOT NULL DEFAULT '', hash TEXT NOT NULL DEFAULT '',
    notice TEXT NOT NULL DEFAULT '', pages TEXT NOT NULL DEFAULT '{}', version INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0, mtime INTEGER NOT NULL DEFAULT 0, inode INTEGER NOT NULL DEFAULT 0,
    planned_path TEXT NOT NULL DEFAULT '', planned_hash TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
INSERT INTO new_note SELECT *, '', '' FROM note;
DROP TABLE note;
ALTER TABLE new_note RENAME TO note;
CREATE INDEX note_path ON note (path);
INSERT INTO note (letter, planned_path, planned_hash) SELECT substr(key, 6),
    substr(value, instr(value, ' ') + 1), substr(value, 1, instr(value, ' ') - 1) FROM meta
    WHERE key > 'note ' AND key < 'note!' AND value != '' ON CONFLICT (letter)
    DO UPDATE SET planned_path = excluded.planned_path, planned_hash = excluded.planned_hash;
CREATE TABLE orphan (
    letter TEXT PRIMARY KEY, since TEXT NOT NULL, swept TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO orphan SELECT substr(key, 8), json_extract(value, '$[0]'),
    coalesce(json_extract(value, '$[1]'), '') FROM meta WHERE key > 'orphan ' AND key < 'orphan!';
ALTER TABLE slip ADD COLUMN filed_path TEXT NOT NULL DEFAULT '';
UPDATE slip SET filed_path = (SELECT value FROM meta WHERE key = 'filed ' || hash)
    WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'filed ' || hash);
CREATE TABLE trusted_slip (text_hash TEXT PRIMARY KEY, path TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO trusted_slip SELECT substr(key, 11), value FROM meta
    WHERE key > 'kept slip ' AND key < 'kept slip!';
CREATE TABLE mailbox_cursor (
    account TEXT PRIMARY KEY, cursor TEXT NOT NULL, floor INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO mailbox_cursor SELECT substr(key, 7), json_extract(value, '$[0]'),
    coalesce(json_extract(value, '$[1]'), 0) FROM meta WHERE key > 'watch ' AND key < 'watch!';
CREATE TABLE last_sent (account TEXT PRIMARY KEY, message TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO last_sent SELECT substr(key, 10), value FROM meta
    WHERE key > 'contacts.' AND key < 'contacts/';
ALTER TABLE letter ADD COLUMN pre_send TEXT NOT NULL DEFAULT '';
UPDATE letter SET pre_send = (SELECT value FROM meta WHERE key = 'before.' || id)
    WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'before.' || id);
ALTER TABLE letter ADD COLUMN fields TEXT NOT NULL DEFAULT '{}';
UPDATE letter SET fields = (SELECT value FROM meta WHERE key = 'fields ' || id)
    WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'fields ' || id);
DROP TABLE meta;
ALTER TABLE letter ADD COLUMN created_at REAL NOT NULL DEFAULT 0;
ALTER TABLE letter ADD COLUMN decided_at REAL NOT NULL DEFAULT 0;
ALTER TABLE letter ADD COLUMN search_text TEXT NOT NULL DEFAULT '';
UPDATE letter SET created_at = json_extract(created, '$[0]'),
    decided_at = coalesce(json_extract(detail, '$.at[0]'), json_extract(created, '$[0]')),
    search_text = casefold(agent || char(10) || id || char(10) || recipients || char(10) || subject
        || char(10) || json_extract(frozen, '$.text'));
CREATE INDEX letter_agent_state ON letter (agent, state);
ALTER TABLE history ADD COLUMN decided_at REAL;
ALTER TABLE history ADD COLUMN slip TEXT NOT NULL DEFAULT '';
UPDATE history SET decided_at = json_extract(detail, '$.verdict[2][0]'),
    slip = coalesce(json_extract(detail, '$.verdict[4]'), '') WHERE state = 'approved';
UPDATE history SET decided_at = json_extract(detail, '$.at[0]') WHERE state IN ('rejected', 'sent');
CREATE INDEX history_decided ON history (decided_at);
ALTER TABLE adopted RENAME TO approval_request;
ALTER TABLE drafted RENAME TO provider_draft;
ALTER TABLE drafting RENAME TO thread_draft;
ALTER TABLE move RENAME TO label_change;
ALTER TABLE visit RENAME TO web_session;
ALTER TABLE errand RENAME TO inbox_item;
DROP INDEX errand_unshown;
DROP INDEX errand_state;
DROP INDEX errand_letter;
ALTER TABLE inbox_item RENAME COLUMN unshown TO note_stale;
CREATE INDEX inbox_item_state ON inbox_item (state, row);
CREATE INDEX inbox_item_letter ON inbox_item (letter) WHERE letter != '';
CREATE INDEX inbox_item_stale ON inbox_item (row) WHERE note_stale != 0;

-- step 13
-- Whether a call was answered that its letter was sent; what was sent before counts as such.
ALTER TABLE letter ADD COLUMN reported INTEGER NOT NULL DEFAULT 0;
UPDATE letter SET reported = 1 WHERE state = 'sent';

-- step 14
-- Before, only letters of the contract `gmail` were recorded before they were sent. Of a draft note the ledger does not
-- keep which mail it answers, but that mail's Message-ID.
UPDATE letter SET pre_send = json_quote(coalesce(
    json_extract(fields, '$.reply_to_message_id'), nullif(json_extract(frozen, '$.in_reply_to'), '')))
    WHERE pre_send = '' AND (form = 'draft' OR home = 'Drafts');

-- step 15
-- Columns that lists show and filter by. The table is built anew, with the long texts last: SQLite walks over all that
-- stands before a column, and a text may have 5 MB.
CREATE TABLE new_letter (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, agent TEXT NOT NULL, account TEXT NOT NULL,
    state TEXT NOT NULL, detail TEXT NOT NULL, version INTEGER NOT NULL, level INTEGER NOT NULL,
    created TEXT NOT NULL, created_at REAL NOT NULL, decided_at REAL NOT NULL,
    content_key TEXT NOT NULL, text_key TEXT NOT NULL, digest TEXT NOT NULL,
    home TEXT NOT NULL, form TEXT NOT NULL, replaces TEXT NOT NULL,
    reported INTEGER NOT NULL DEFAULT 0, pre_send TEXT NOT NULL DEFAULT '',
    subject TEXT NOT NULL, recipient_name TEXT NOT NULL, opening TEXT NOT NULL,
    fields TEXT NOT NULL DEFAULT '{}', origins TEXT NOT NULL,
    recipients TEXT NOT NULL, recipient_search TEXT NOT NULL, card TEXT NOT NULL,
    frozen TEXT NOT NULL, search_text TEXT NOT NULL
);
INSERT INTO new_letter SELECT
    row, id, agent, CASE WHEN json_valid(frozen) THEN coalesce(json_extract(frozen, '$.account'), '') ELSE '' END,
    state, detail, version, CASE WHEN NOT json_valid(card) THEN 0
        WHEN json_extract(card, '$[0][0]') IN (1, 2) THEN json_extract(card, '$[0][0]') ELSE 0 END,
    created, created_at, decided_at, content_key, text_key, digest, home, form, replaces, reported, pre_send,
    subject, CASE WHEN json_valid(frozen) THEN coalesce(json_extract(frozen, '$.to[0][2]'),
        json_extract(frozen, '$.cc[0][2]'), json_extract(frozen, '$.bcc[0][2]'), '') ELSE '' END,
    CASE WHEN json_valid(frozen) THEN substr(one_line(substr(ltrim(coalesce(json_extract(frozen, '$.text'), ''),
        char(9, 10, 13, 32, 160)), 1, 1000)), 1, 160) ELSE '' END,
    fields, origins, recipients, '', card, frozen, search_text FROM letter ORDER BY row;
DROP TABLE letter;
ALTER TABLE new_letter RENAME TO letter;
UPDATE letter SET recipient_search = casefold(recipients || char(10) || recipient_name);
CREATE INDEX letter_content ON letter (agent, content_key);
CREATE INDEX letter_text ON letter (text_key);
CREATE INDEX letter_agent ON letter (agent, row);
CREATE INDEX letter_state ON letter (state, row, agent, account, level);
CREATE INDEX letter_agent_state ON letter (agent, state, created_at);
-- Whether a person gave the approval of this step; versions before 0.2 had another name for none.
ALTER TABLE history ADD COLUMN by_person INTEGER NOT NULL DEFAULT 0;
UPDATE history SET by_person = 1 WHERE state = 'approved' AND json_valid(detail)
    AND json_extract(detail, '$.verdict[1]') NOT IN ('not_required', 'required = false');
