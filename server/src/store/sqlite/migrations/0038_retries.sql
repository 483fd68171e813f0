-- The retries of a job.
CREATE INDEX jobs_by_retry ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX ended_by_retry ON ended (retry_of) WHERE retry_of IS NOT NULL;
