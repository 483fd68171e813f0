-- Jobs that wait for the ends of others.
CREATE TABLE dependencies (
    job      INTEGER NOT NULL,  -- that waits
    on_job   INTEGER NOT NULL,  -- that it waits for
    requires INTEGER NOT NULL,  -- the end that this one must have: 0 succeeded, 1 failed, 2 any
    ended    INTEGER,           -- the state in which it ended, once the waiting job has learned that
    waits    INTEGER NOT NULL,  -- 1 while the job waits for it
    PRIMARY KEY (job, on_job)
) STRICT, WITHOUT ROWID;

CREATE INDEX dependencies_by_predecessor ON dependencies (on_job, job);
CREATE INDEX dependencies_open ON dependencies (job) WHERE waits = 1;

-- Cancelled members of a batch that were skipped: the end of another job that they required did not come, and nothing went wrong.
ALTER TABLE batches ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;

-- A batch succeeds if the members that were not skipped did.
ALTER TABLE batches DROP COLUMN state;
ALTER TABLE batches ADD COLUMN state TEXT GENERATED ALWAYS AS (CASE
    WHEN ended_at IS NULL AND scheduled + queued = count THEN 'waiting'
    WHEN ended_at IS NULL THEN 'running'
    WHEN failed + expired + lost > 0 THEN 'failed'
    WHEN cancelled > skipped THEN 'cancelled'
    ELSE 'succeeded' END) VIRTUAL;

-- Members of a batch that may hold a worker at once.
ALTER TABLE batches ADD COLUMN concurrency INTEGER;
