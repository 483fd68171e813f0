UPDATE jobs SET state = iif(?5 IS NULL, state, 4), started_at = coalesce(?5, started_at), container = coalesce(?6, container),
    stopping = iif(?7 = 1, 1, coalesce(stopping, ?7))
WHERE id = ?1 AND fence = ?2 AND nonce = ?3 AND state BETWEEN 3 AND ?4
