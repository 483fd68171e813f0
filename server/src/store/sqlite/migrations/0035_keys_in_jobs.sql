-- The keys of a job's limits are columns of the live job: rows of their own were written and deleted once for each job.
ALTER TABLE jobs ADD COLUMN concurrency_key TEXT;
ALTER TABLE jobs ADD COLUMN rate_key TEXT;

UPDATE jobs SET details = details & 3,
    (concurrency_key, rate_key) = (SELECT concurrency, rate FROM job_keys WHERE job = jobs.id)
WHERE id IN (SELECT job FROM job_keys);

DROP TABLE job_keys;
