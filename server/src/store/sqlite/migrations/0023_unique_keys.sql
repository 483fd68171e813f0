-- Unique keys that are taken. An ended job may keep its key; retention does not delete it then.
CREATE TABLE unique_keys (
    definition  TEXT NOT NULL,
    key         TEXT NOT NULL,
    job         INTEGER NOT NULL,   -- that has it
    predecessor INTEGER,            -- that it replaces and waits for
    PRIMARY KEY (definition, key)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX unique_keys_by_job ON unique_keys (job);
