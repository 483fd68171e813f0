-- The first schema. How rows move between these tables: docs/decisions, "attempts live inside of their jobs".
-- Instants are milliseconds since 1970 in UTC. States, outcomes and causes are the numbers of codes.rs; the views spell them out.

-- One row: who writes, and how far the counters have come.
CREATE TABLE installation (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    cluster     INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    committed   INTEGER NOT NULL,           -- the last group
    last_job    INTEGER NOT NULL,
    last_fence  INTEGER NOT NULL,
    last_worker INTEGER NOT NULL,
    boot        TEXT NOT NULL,              -- the machine's boot in which the store was last opened
    clean       INTEGER NOT NULL            -- whether it was closed in good order since
) STRICT;

CREATE TABLE definitions (
    id       INTEGER PRIMARY KEY,
    revision BLOB NOT NULL UNIQUE CHECK (length(revision) = 16),
    name     TEXT NOT NULL,
    entry    TEXT NOT NULL
) STRICT;
CREATE INDEX definitions_by_name ON definitions (name);

-- Jobs that have not ended, each with its latest attempt inside: so there cannot be two current ones.
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    definition   INTEGER NOT NULL,
    state        INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
    priority     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    timeout_ms   INTEGER,                   -- null: as defined; -1: none
    batch        INTEGER,
    retry_of     INTEGER,
    details      INTEGER NOT NULL DEFAULT 0, -- 1: has labels; 2: has a body
    own_failures INTEGER NOT NULL DEFAULT 0,
    losses       TEXT,                      -- JSON: instants of the last day
    attempts     INTEGER NOT NULL DEFAULT 0,
    fence        INTEGER,
    nonce        INTEGER,
    worker       INTEGER,
    session      INTEGER,
    assigned_at  INTEGER,
    started_at   INTEGER,
    container    TEXT,
    stopping     INTEGER,
    outcome      INTEGER,
    exit_code    INTEGER,
    message      TEXT,
    closed_at    INTEGER,
    stdout_bytes INTEGER,
    stderr_bytes INTEGER,
    result       TEXT,
    released     INTEGER,
    -- Assigned (3) and running (4) have an open attempt, all others have none.
    CHECK (CASE WHEN state IN (3, 4)
        THEN fence IS NOT NULL AND nonce IS NOT NULL AND worker IS NOT NULL AND session IS NOT NULL
            AND assigned_at IS NOT NULL AND outcome IS NULL AND (state = 3 OR started_at IS NOT NULL)
        ELSE fence IS NULL OR outcome IS NOT NULL END)
) STRICT;

-- Jobs that have ended. A table of its own: live jobs are found without touching history, and rows here can be made immutable
-- at no cost for those that still move.
CREATE TABLE ended (
    id           INTEGER PRIMARY KEY,
    definition   INTEGER NOT NULL,
    state        INTEGER NOT NULL CHECK (state BETWEEN 6 AND 10),
    priority     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    timeout_ms   INTEGER,
    batch        INTEGER,
    retry_of     INTEGER,
    details      INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    fence        INTEGER,
    nonce        INTEGER,
    worker       INTEGER,
    assigned_at  INTEGER,
    started_at   INTEGER,
    container    TEXT,
    stopping     INTEGER,
    outcome      INTEGER,
    exit_code    INTEGER,
    message      TEXT,
    closed_at    INTEGER,
    stdout_bytes INTEGER,
    stderr_bytes INTEGER,
    result       TEXT,
    released     INTEGER,
    ended_at     INTEGER NOT NULL,
    reason       TEXT,                      -- null: none
    confirmed    INTEGER NOT NULL,
    CHECK (fence IS NULL OR outcome IS NOT NULL)
) STRICT;

-- Ends other than success are few and asked for often. Success pays nothing for these.
CREATE INDEX ended_badly ON ended (state, definition) WHERE state <> 6;
CREATE INDEX ended_badly_in_order ON ended (state) WHERE state <> 6;

CREATE TRIGGER ended_is_for_good BEFORE UPDATE OF
    id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, ended_at, reason ON ended
BEGIN
    SELECT RAISE(ABORT, 'an ended job never changes');
END;

-- Attempts that have had a successor.
CREATE TABLE past_attempts (
    job          INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    nonce        INTEGER NOT NULL,
    worker       INTEGER NOT NULL,
    assigned_at  INTEGER NOT NULL,
    started_at   INTEGER,
    container    TEXT,
    stopping     INTEGER,
    outcome      INTEGER NOT NULL,
    exit_code    INTEGER,
    message      TEXT,
    closed_at    INTEGER NOT NULL,
    stdout_bytes INTEGER NOT NULL,
    stderr_bytes INTEGER NOT NULL,
    result       TEXT,
    released     INTEGER,
    PRIMARY KEY (job, fence)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER past_is_past BEFORE UPDATE ON past_attempts
BEGIN
    SELECT RAISE(ABORT, 'a past attempt never changes');
END;

-- What some jobs have beside their row. JSON, because people look into this file too.
CREATE TABLE details (
    job         INTEGER PRIMARY KEY,
    labels      TEXT,
    environment TEXT,
    args        TEXT,
    input       TEXT
) STRICT;

CREATE TABLE labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    job   INTEGER NOT NULL,
    PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;

CREATE TABLE notes (
    id     INTEGER PRIMARY KEY,
    job    INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    kind   INTEGER NOT NULL,
    fence  INTEGER,
    nonce  INTEGER,
    worker INTEGER,
    text   TEXT
) STRICT;
CREATE INDEX notes_by_job ON notes (job);

CREATE TABLE keys (
    key    TEXT PRIMARY KEY,
    job    INTEGER NOT NULL,
    count  INTEGER NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 16),
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    secret_hash BLOB NOT NULL CHECK (length(secret_hash) = 32),
    joined_at   INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL,
    cordoned    INTEGER NOT NULL,
    slots       INTEGER,
    forgotten   INTEGER NOT NULL DEFAULT 0  -- kept for the name of its attempts
) STRICT;

-- Coarse indexes: which blocks of 4,096 consecutive jobs have anything of a definition or of a worker, and when a block's jobs
-- were accepted. A row per block instead of an index entry per job.
CREATE TABLE seen (
    kind  INTEGER NOT NULL,                 -- 1: a definition's name, by its first revision; 2: a worker
    which INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (kind, which, block)
) STRICT, WITHOUT ROWID;

CREATE TABLE blocks (
    block  INTEGER PRIMARY KEY,
    oldest INTEGER NOT NULL,
    newest INTEGER NOT NULL
) STRICT;

CREATE VIEW all_jobs AS
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, NULL AS ended_at, NULL AS reason, 0 AS confirmed
FROM jobs
UNION ALL
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, ended_at, reason, confirmed
FROM ended;

CREATE VIEW all_attempts AS
SELECT job, number, fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes, result, released
FROM past_attempts
UNION ALL
SELECT id, attempts, fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes, result, released
FROM all_jobs WHERE fence IS NOT NULL;

-- For people who look into this file.
CREATE VIEW jobs_for_people AS
SELECT j.id, d.name,
    CASE j.state WHEN 1 THEN 'scheduled' WHEN 2 THEN 'queued' WHEN 3 THEN 'assigned' WHEN 4 THEN 'running' WHEN 5 THEN 'quarantined'
        WHEN 6 THEN 'succeeded' WHEN 7 THEN 'failed' WHEN 8 THEN 'cancelled' WHEN 9 THEN 'expired' WHEN 10 THEN 'lost' END AS state,
    datetime(j.created_at / 1000, 'unixepoch') AS created, datetime(j.ended_at / 1000, 'unixepoch') AS ended,
    j.attempts, w.name AS worker, j.exit_code, j.reason
FROM all_jobs j JOIN definitions d ON d.id = j.definition LEFT JOIN workers w ON w.id = j.worker;
