-- What became of the hooks of jobs: a row for each definition that a hook of an event names. A crash leaves it with its event, or neither.
CREATE TABLE hooks (
    parent INTEGER NOT NULL,        -- the job that started or ended
    event  TEXT NOT NULL,           -- on_start, on_success, on_failure, on_end
    target TEXT NOT NULL,           -- name of the definition that the hook is for
    at     INTEGER NOT NULL,        -- when it was decided
    job    INTEGER,                 -- that was made; absent: it was left out
    depth  INTEGER,                 -- of that job in a chain of hooks
    reason TEXT,                    -- why it was left out
    PRIMARY KEY (parent, event, target),
    CHECK ((job IS NULL) = (depth IS NULL) AND (job IS NULL) = (reason IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX hooks_by_job ON hooks (job) WHERE job IS NOT NULL;

CREATE TRIGGER hooks_stay_decided BEFORE UPDATE ON hooks
BEGIN
    SELECT RAISE(ABORT, 'a hook is decided once');
END;
