-- OR FAIL: a row that breaks a rule fails the whole transaction anyway, so SQLite need not be able to undo the statement alone.
INSERT OR FAIL INTO ended (id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts,
    fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes, result, released, usage, submitter, ended_at, reason, confirmed)
SELECT id, definition, ?2, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts,
    fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes, result, released, usage, submitter, ?3, ?4, ?5
FROM jobs WHERE id = ?1 AND state IN (1, 2, 5)
