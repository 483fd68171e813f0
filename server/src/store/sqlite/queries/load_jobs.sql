SELECT id, definition, state, priority, due_at, timeout_ms, details, own_failures, losses, attempts,
    fence, nonce, worker, session, assigned_at, started_at, stopping
FROM jobs ORDER BY id
