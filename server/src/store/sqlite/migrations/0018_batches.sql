-- Jobs that were submitted together, with how many of them are in each state. The writer changes the counts in the transaction that changes
-- the rows of the members.
CREATE TABLE batches (
    id           INTEGER PRIMARY KEY,        -- the first member; the others follow
    name         TEXT,
    created_at   INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    max_failures INTEGER,
    scheduled    INTEGER NOT NULL DEFAULT 0,
    queued       INTEGER NOT NULL DEFAULT 0,
    assigned     INTEGER NOT NULL DEFAULT 0,
    running      INTEGER NOT NULL DEFAULT 0,
    quarantined  INTEGER NOT NULL DEFAULT 0,
    succeeded    INTEGER NOT NULL DEFAULT 0,
    failed       INTEGER NOT NULL DEFAULT 0,
    cancelled    INTEGER NOT NULL DEFAULT 0,
    expired      INTEGER NOT NULL DEFAULT 0,
    lost         INTEGER NOT NULL DEFAULT 0,
    removed      INTEGER NOT NULL DEFAULT 0, -- members that retention deleted; they are counted by their end as well
    ended_at     INTEGER,                    -- when the last member ended
    live         INTEGER NOT NULL GENERATED ALWAYS AS (scheduled + queued + assigned + running + quarantined) VIRTUAL,
    state        TEXT NOT NULL GENERATED ALWAYS AS (CASE
        WHEN ended_at IS NULL AND scheduled + queued = count THEN 'waiting'
        WHEN ended_at IS NULL THEN 'running'
        WHEN failed + expired + lost > 0 THEN 'failed'
        WHEN cancelled > 0 THEN 'cancelled'
        ELSE 'succeeded' END) VIRTUAL
) STRICT;

CREATE INDEX batches_live ON batches (id) WHERE ended_at IS NULL;

-- The row of a batch goes with its last member.
CREATE TRIGGER member_is_removed AFTER DELETE ON ended WHEN OLD.batch IS NOT NULL
BEGIN
    UPDATE batches SET removed = removed + 1 WHERE id = OLD.batch;
    DELETE FROM batches WHERE id = OLD.batch AND removed >= count;
END;

-- Batches of earlier versions. Members that retention deleted count as removed, and as nothing else.
INSERT INTO batches (id, created_at, count, scheduled, queued, assigned, running, quarantined, succeeded, failed, cancelled, expired, lost,
    removed, ended_at)
SELECT batch, min(created_at), max(id) - batch + 1, sum(state = 1), sum(state = 2), sum(state = 3), sum(state = 4), sum(state = 5),
    sum(state = 6), sum(state = 7), sum(state = 8), sum(state = 9), sum(state = 10), max(id) - batch + 1 - count(*),
    iif(sum(state <= 5) = 0, max(ended_at), NULL)
FROM all_jobs WHERE batch IS NOT NULL GROUP BY batch;
