SELECT id, definition, state, priority, due_at, timeout_ms, details, own_failures, losses, attempts,
    fence, nonce, worker, session, assigned_at, started_at, stopping, outcome,
    -- Of the last attempt before this one that was not given back (12), if this one is not over, or was.
    iif(attempts > 1 AND coalesce(outcome, 12) = 12, (SELECT past.worker FROM past_attempts past
        WHERE past.job = jobs.id AND past.outcome <> 12 ORDER BY past.fence DESC LIMIT 1), NULL),
    iif(attempts > 1 AND coalesce(outcome, 12) = 12, (SELECT past.outcome FROM past_attempts past
        WHERE past.job = jobs.id AND past.outcome <> 12 ORDER BY past.fence DESC LIMIT 1), NULL),
    -- Whether an attempt of it was lost (10).
    outcome IS 10 OR (attempts > 1 AND EXISTS (SELECT 1 FROM past_attempts past WHERE past.job = jobs.id AND past.outcome = 10)),
    -- How many of them were killed for their memory limit (3).
    iif(own_failures > 0, (outcome IS 3) + (SELECT count(*) FROM past_attempts past WHERE past.job = jobs.id AND past.outcome = 3), 0),
    created_at, batch,
    (SELECT at FROM expiries WHERE expiries.job = jobs.id),
    concurrency_key, rate_key,
    -- Whether a container of it has started, in any attempt.
    started_at IS NOT NULL OR (attempts > 1 AND EXISTS (SELECT 1 FROM past_attempts past
        WHERE past.job = jobs.id AND past.started_at IS NOT NULL)),
    (SELECT depth FROM hooks WHERE hooks.job = jobs.id),
    -- The first requester (1), if it is being cancelled (1).
    iif(stopping = 1, (SELECT text FROM notes WHERE notes.job = jobs.id AND kind = 1 ORDER BY notes.id LIMIT 1), NULL)
FROM jobs ORDER BY id
