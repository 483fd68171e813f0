-- Makes room in the row for the next attempt.
INSERT INTO past_attempts (job, number, fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code,
    message, closed_at, stdout_bytes, stderr_bytes, result, released, usage)
SELECT id, attempts, fence, nonce, worker, assigned_at, started_at, container, stopping, outcome, exit_code,
    message, closed_at, stdout_bytes, stderr_bytes, result, released, usage
FROM jobs WHERE id = ?1 AND state = ?2 AND fence IS NOT NULL
