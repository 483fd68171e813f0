-- Of cancelled jobs (8) that are not confirmed: what was lost (10), and no note says that its container is gone (6).
SELECT job, fence, nonce, worker, definition
FROM (SELECT id AS job, fence, nonce, worker, definition FROM ended WHERE state = 8 AND confirmed = 0 AND outcome = 10
    UNION ALL
    SELECT past.job, past.fence, past.nonce, past.worker, definition
    -- In this order: of the two only the first has an index for what is asked.
    FROM ended CROSS JOIN past_attempts AS past ON past.job = ended.id
    WHERE ended.state = 8 AND ended.confirmed = 0 AND past.outcome = 10) AS lost
WHERE NOT EXISTS (SELECT 1 FROM notes WHERE notes.job = lost.job AND kind = 6 AND notes.fence = lost.fence AND notes.nonce = lost.nonce)
ORDER BY worker, job, fence
