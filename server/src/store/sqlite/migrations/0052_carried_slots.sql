-- The retries of jobs that a schedule has made: each carries on the slot of its job, and has no row of its own in the ledger. Lists of the jobs
-- of a schedule find them here, and so does the last retry of the job of a slot, also if retries between them are deleted.
CREATE TABLE carried_slots (
    job        INTEGER PRIMARY KEY,
    root       INTEGER NOT NULL,       -- the job of the ledger
    definition TEXT NOT NULL,
    schedule   TEXT NOT NULL
) STRICT;
CREATE INDEX carried_slots_by_schedule ON carried_slots (schedule, job, definition);
CREATE INDEX carried_slots_by_root ON carried_slots (root, job);

-- The retries that earlier versions have made, as far as no retry between them and the job of the ledger is deleted.
INSERT INTO carried_slots (job, root, definition, schedule)
WITH RECURSIVE carried (job, root, definition, schedule) AS (
    SELECT repeats.id, fires.job, fires.definition, fires.schedule
    FROM (SELECT id, retry_of FROM jobs WHERE retry_of IS NOT NULL
          UNION ALL SELECT id, retry_of FROM ended WHERE retry_of IS NOT NULL) AS repeats
    CROSS JOIN fires ON fires.job = repeats.retry_of AND fires.reason IS NULL
    UNION ALL
    SELECT jobs.id, carried.root, carried.definition, carried.schedule
    FROM carried CROSS JOIN jobs ON jobs.retry_of = carried.job
    UNION ALL
    SELECT ended.id, carried.root, carried.definition, carried.schedule
    FROM carried CROSS JOIN ended ON ended.retry_of = carried.job
)
SELECT job, root, definition, schedule FROM carried WHERE true
ON CONFLICT DO NOTHING;
