-- State of expectations, by the name of their definition and not by its revision.
CREATE TABLE expectations (
    definition    TEXT PRIMARY KEY,
    awaited_since INTEGER,      -- the last success, or when it was first expected
    stale_since   INTEGER,
    slow_since    INTEGER,
    slow_job      INTEGER
) STRICT, WITHOUT ROWID;
