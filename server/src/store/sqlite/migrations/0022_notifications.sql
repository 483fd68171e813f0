-- Messages that the server owes to the targets of definitions. URLs and secrets of the targets are in jobs.yaml only.
CREATE TABLE notifications (
    id         INTEGER PRIMARY KEY,
    message    TEXT NOT NULL,                -- the id that targets see: drawn, because numbers come again after a restore
    definition TEXT NOT NULL,
    target     TEXT NOT NULL,                -- a part of the SHA-256 of the target's kind and URL
    kind       TEXT NOT NULL,
    host       TEXT NOT NULL,
    occasion   TEXT NOT NULL,
    count      INTEGER NOT NULL,
    first_at   INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,
    job        INTEGER,                      -- the job of the last time
    state      TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'failed')),
    opens_at   INTEGER NOT NULL,
    due_at     INTEGER NOT NULL,
    tries      INTEGER NOT NULL,
    tried_at   INTEGER,
    give_up_at INTEGER,                      -- set by the first try
    error      TEXT
) STRICT;

-- Further occasions are counted in the message that was not sent yet.
CREATE UNIQUE INDEX notifications_open ON notifications (definition, target, occasion) WHERE state = 'waiting' AND tries = 0;
CREATE INDEX notifications_waiting ON notifications (target, due_at) WHERE state = 'waiting';
CREATE INDEX notifications_by_definition ON notifications (definition, target, occasion, id);

-- Definitions whose last job has not succeeded, of those with targets.
CREATE TABLE failing_definitions (
    definition TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
