-- Deadlines of jobs that wait for a limited time. Other jobs have no row here.
CREATE TABLE expiries (
    job INTEGER PRIMARY KEY,
    at  INTEGER NOT NULL
) STRICT;
