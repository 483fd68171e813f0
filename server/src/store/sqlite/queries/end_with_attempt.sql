-- OR FAIL: a row that breaks a rule fails the whole transaction anyway, so SQLite need not be able to undo the statement alone.
INSERT OR FAIL INTO ended (id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts,
    fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes, result, released, usage, submitter, ended_at, reason, confirmed)
SELECT id, definition, ?17, priority, created_at, due_at, timeout_ms, batch, retry_of, details, attempts,
    fence, nonce, worker, assigned_at, coalesce(?5, started_at), coalesce(?6, container), iif(?7 = 1, 1, coalesce(stopping, ?7)), ?8, ?9, ?10, ?11,
    ?12, ?13, ?14, ?15, ?16, submitter, ?18, ?19, ?20
FROM jobs WHERE id = ?1 AND fence = ?2 AND nonce = ?3 AND state BETWEEN 3 AND ?4
