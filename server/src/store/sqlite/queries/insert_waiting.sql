INSERT INTO jobs (id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details,
    concurrency_key, rate_key, submitter)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
