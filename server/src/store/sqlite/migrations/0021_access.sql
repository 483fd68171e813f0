-- Tokens of the API and of workers. Only the hash of a token is here.
CREATE TABLE tokens (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL,
    hash         BLOB NOT NULL,
    role         TEXT NOT NULL,
    scope        TEXT NOT NULL,              -- names and patterns of definitions, as a JSON list; empty: all
    created_at   INTEGER NOT NULL,
    created_by   TEXT NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

CREATE UNIQUE INDEX tokens_by_name ON tokens (name) WHERE revoked_at IS NULL;

-- Requests that were to change something. Like ones that come close together are one row.
CREATE TABLE audit (
    id         INTEGER PRIMARY KEY,
    since      INTEGER NOT NULL,             -- when the first was answered
    until      INTEGER NOT NULL,             -- when the last was answered
    count      INTEGER NOT NULL,
    token      TEXT,
    role       TEXT,
    address    TEXT,
    method     TEXT NOT NULL,
    target     TEXT NOT NULL,
    status     INTEGER NOT NULL,
    problem    TEXT,
    request_id TEXT NOT NULL
) STRICT;
