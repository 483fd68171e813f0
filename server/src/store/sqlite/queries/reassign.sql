UPDATE jobs SET state = ?3, attempts = ?4, fence = ?5, nonce = ?6, worker = ?7, session = ?8, assigned_at = ?9,
    started_at = ?10, container = ?11, stopping = ?12, outcome = NULL, exit_code = NULL, message = NULL, closed_at = NULL,
    stdout_bytes = NULL, stderr_bytes = NULL, result = NULL, released = NULL, usage = NULL
WHERE id = ?1 AND state = ?2
