-- Large batches whose members are still being made, a slice with each group. Rows of `jobs` within such a range are nobody's business
-- until the last slice removes the range; what a start finds in one was never promised to anyone, and is removed.
CREATE TABLE forming (
    first INTEGER PRIMARY KEY,
    last  INTEGER NOT NULL CHECK (last >= first)
) STRICT;

DROP VIEW all_jobs;
CREATE VIEW all_jobs AS
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, NULL AS ended_at, NULL AS reason, 0 AS confirmed
FROM jobs WHERE NOT EXISTS (SELECT 1 FROM forming WHERE jobs.id BETWEEN first AND last)
UNION ALL
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, ended_at, reason, confirmed
FROM ended;
