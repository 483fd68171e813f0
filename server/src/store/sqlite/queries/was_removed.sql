-- Numbers above what SQLite has are negative here, and were never given.
SELECT ?1 BETWEEN 1 AND (SELECT last_job FROM installation)
    AND NOT EXISTS (SELECT 1 FROM gaps WHERE ?1 > after AND ?1 <= until)
    AND NOT EXISTS (SELECT 1 FROM forming WHERE ?1 BETWEEN first AND last)
    AND NOT EXISTS (SELECT 1 FROM all_jobs WHERE id = ?1)
