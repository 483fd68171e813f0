UPDATE jobs SET started_at = coalesce(?5, started_at), container = coalesce(?6, container), stopping = iif(?7 = 1, 1, coalesce(stopping, ?7)),
    outcome = ?8, exit_code = ?9, message = ?10, closed_at = ?11, stdout_bytes = ?12, stderr_bytes = ?13, result = ?14,
    released = ?15, usage = ?16, state = ?17, due_at = ?18, own_failures = own_failures + ?19, losses = coalesce(?20, losses)
WHERE id = ?1 AND fence = ?2 AND nonce = ?3 AND state BETWEEN 3 AND ?4
