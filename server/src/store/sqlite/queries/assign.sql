-- The first attempt: nothing of an earlier one is in the way.
UPDATE jobs SET state = ?3, attempts = ?4, fence = ?5, nonce = ?6, worker = ?7, session = ?8, assigned_at = ?9,
    started_at = ?10, container = ?11, stopping = ?12
WHERE id = ?1 AND state = ?2 AND fence IS NULL
