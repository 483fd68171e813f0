-- Rows of attempts that are not the current one of a live job, and not such as were lost (10) while no note says that the container is gone
-- (6). A lost attempt of an ended job counts only if the job was cancelled (8) and is not confirmed.
DELETE FROM gpus
WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE id = gpus.job AND fence = gpus.fence AND closed_at IS NULL)
    AND (
        NOT EXISTS (
            SELECT 1 FROM past_attempts WHERE job = gpus.job AND fence = gpus.fence AND outcome = 10
            UNION ALL SELECT 1 FROM jobs WHERE id = gpus.job AND fence = gpus.fence AND outcome = 10
            UNION ALL SELECT 1 FROM ended WHERE id = gpus.job AND fence = gpus.fence AND outcome = 10
        )
        OR EXISTS (SELECT 1 FROM notes WHERE job = gpus.job AND kind = 6 AND notes.fence = gpus.fence)
        OR NOT EXISTS (
            SELECT 1 FROM jobs WHERE id = gpus.job
            UNION ALL SELECT 1 FROM ended WHERE id = gpus.job AND state = 8 AND confirmed = 0
        )
    )
