-- The names of tokens and users that made jobs. A job has the number of its name; it has none if no name is known, or no request made it.
-- Blocks with jobs of a name are in seen, as kind 3: an entry for each block, and no index with an entry for each job.
CREATE TABLE submitters (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

ALTER TABLE jobs ADD COLUMN submitter INTEGER;
ALTER TABLE ended ADD COLUMN submitter INTEGER;

DROP TRIGGER ended_is_for_good;
CREATE TRIGGER ended_is_for_good BEFORE UPDATE OF
    id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, submitter, ended_at, reason ON ended
BEGIN
    SELECT RAISE(ABORT, 'an ended job never changes');
END;

-- A view keeps the columns that it was made with. The others read from this one, and stay.
DROP VIEW all_jobs;
CREATE VIEW all_jobs AS
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, submitter, NULL AS ended_at, NULL AS reason, 0 AS confirmed
FROM jobs WHERE NOT EXISTS (SELECT 1 FROM forming WHERE jobs.id BETWEEN first AND last)
UNION ALL
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, submitter, ended_at, reason, confirmed
FROM ended;
