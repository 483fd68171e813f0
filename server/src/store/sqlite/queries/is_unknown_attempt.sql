SELECT CASE
    WHEN EXISTS (SELECT 1 FROM all_jobs WHERE id = ?1)
    THEN NOT EXISTS (SELECT 1 FROM all_attempts WHERE job = ?1 AND fence = ?2 AND nonce = ?3)
    -- Numbers above what SQLite has are negative here, and were never given either.
    ELSE ?1 NOT BETWEEN 1 AND (SELECT last_job FROM installation)
        OR EXISTS (SELECT 1 FROM gaps WHERE ?1 > after AND ?1 <= until)
    END
