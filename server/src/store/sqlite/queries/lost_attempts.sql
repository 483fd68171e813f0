-- Lost (10), and no note says that the container is gone (6).
SELECT fence, nonce, worker
FROM (SELECT fence, nonce, worker FROM past_attempts WHERE job = ?1 AND outcome = 10
    UNION ALL
    SELECT fence, nonce, worker FROM jobs WHERE id = ?1 AND outcome = 10) AS lost
WHERE NOT EXISTS (SELECT 1 FROM notes WHERE job = ?1 AND kind = 6 AND notes.fence = lost.fence AND notes.nonce = lost.nonce)
ORDER BY fence
