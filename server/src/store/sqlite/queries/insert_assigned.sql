INSERT INTO jobs (id, definition, state, priority, created_at, due_at, timeout_ms, batch, retry_of, details,
    concurrency_key, rate_key, submitter, attempts, fence, nonce, worker, session, assigned_at, started_at, container, stopping)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
