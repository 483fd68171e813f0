-- Failures that nobody has dealt with: jobs that failed, expired or were lost, without a retry and without an acknowledgement. Members of a
-- parent have no row: the parent stands for them. Jobs that ended under an older version have none either.
CREATE TABLE unresolved (
    job  INTEGER PRIMARY KEY,
    name INTEGER NOT NULL              -- of the definition, by its first revision
) STRICT;
CREATE INDEX unresolved_by_name ON unresolved (name);

-- How many rows each definition has there. A definition without one has no total.
CREATE TABLE unresolved_totals (
    name INTEGER PRIMARY KEY,
    jobs INTEGER NOT NULL
) STRICT;

-- Acknowledgements of failures: by whom, when and why.
CREATE TABLE acknowledgements (
    job     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    made_by TEXT,                      -- the name of the token, or of the user
    reason  TEXT
) STRICT;

-- Jobs that wait for another attempt: few among those that wait for the time that somebody gave them.
CREATE INDEX jobs_in_backoff ON jobs (state) WHERE state = 1 AND outcome IS NOT NULL;
