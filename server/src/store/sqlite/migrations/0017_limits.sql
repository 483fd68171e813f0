-- Values of the keys of limits, of jobs that have not ended. Most jobs have none.
CREATE TABLE job_keys (
    job         INTEGER PRIMARY KEY,
    concurrency TEXT,
    rate        TEXT
) STRICT;

CREATE TRIGGER keys_end_with_their_job AFTER DELETE ON jobs
BEGIN
    DELETE FROM job_keys WHERE job = OLD.id;
END;

-- Rates under which jobs have started. A rate that has recovered needs no row.
CREATE TABLE rates (
    name         TEXT NOT NULL,     -- of the definition
    has_key      INTEGER NOT NULL,
    key          TEXT NOT NULL,     -- empty without a key
    recovered_at INTEGER NOT NULL,  -- when it has recovered from all starts
    PRIMARY KEY (name, has_key, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX rates_by_end ON rates (recovered_at);
