-- Jobs that run on several workers: parents, with how their members ended. The row keeps the counts, since members may be deleted first.
CREATE TABLE parents (
    job          INTEGER PRIMARY KEY,
    wanted       INTEGER,           -- number of members; null: one for each worker
    workers      TEXT,              -- JSON, ids: the workers of the members; if `wanted` is not null, workers that get none
    is_complete  INTEGER NOT NULL,  -- 1: no further member is made
    started_at   INTEGER,           -- start of the first container of a member
    cancelled_by TEXT,
    total        INTEGER NOT NULL,
    succeeded    INTEGER NOT NULL,
    failed       INTEGER NOT NULL,
    cancelled    INTEGER NOT NULL,
    expired      INTEGER NOT NULL,
    lost         INTEGER NOT NULL
) STRICT;

CREATE TABLE members (
    job    INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    worker INTEGER               -- the only worker that may run it
) STRICT;

CREATE INDEX members_by_parent ON members (parent, job);

-- Parents of which a member has started. Their rows among the live jobs are queued ones, since they have no attempt.
CREATE TABLE running_parents (
    job INTEGER PRIMARY KEY
) STRICT;

-- Workers where a member has been, so that no other one goes there. Needed while the parent lives.
CREATE TABLE used_workers (
    parent INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    job    INTEGER NOT NULL,
    PRIMARY KEY (parent, worker)
) STRICT, WITHOUT ROWID;
