-- What an attempt has used: JSON, a list of CPU milliseconds, the peak of memory, bytes received and sent, bytes read and written.
-- A figure that nobody measured is null; so is the whole column if there is none. One text is smaller than six columns.
ALTER TABLE jobs ADD COLUMN usage TEXT;
ALTER TABLE ended ADD COLUMN usage TEXT;
ALTER TABLE past_attempts ADD COLUMN usage TEXT;

DROP TRIGGER ended_is_for_good;
CREATE TRIGGER ended_is_for_good BEFORE UPDATE OF
    id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, ended_at, reason ON ended
BEGIN
    SELECT RAISE(ABORT, 'an ended job never changes');
END;

-- A view keeps the columns that it was made with. The others read from this one, and stay.
DROP VIEW all_jobs;
CREATE VIEW all_jobs AS
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, NULL AS ended_at, NULL AS reason, 0 AS confirmed
FROM jobs WHERE NOT EXISTS (SELECT 1 FROM forming WHERE jobs.id BETWEEN first AND last)
UNION ALL
SELECT id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts, fence, nonce, worker,
    assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, result,
    released, usage, ended_at, reason, confirmed
FROM ended;
