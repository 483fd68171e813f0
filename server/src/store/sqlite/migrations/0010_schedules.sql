-- Schedules, by the name of their definition and not by its revision, and the ledger of their slots.
CREATE TABLE schedules (
    definition  TEXT NOT NULL,
    schedule    TEXT NOT NULL,      -- its id in jobs.yaml, or one derived from its rule
    cursor      INTEGER NOT NULL,   -- the last decided slot; never goes back
    fingerprint INTEGER NOT NULL,   -- of the rule that the cursor belongs to
    removed_at  INTEGER,            -- since when it is not in jobs.yaml
    last_slot   INTEGER,            -- the last slot that became a job
    last_at     INTEGER,
    last_job    INTEGER,
    PRIMARY KEY (definition, schedule)
) STRICT, WITHOUT ROWID;

-- Empty names: everything; an empty schedule: all schedules of the definition.
CREATE TABLE pauses (
    definition TEXT NOT NULL,
    schedule   TEXT NOT NULL,
    since      INTEGER NOT NULL,
    PRIMARY KEY (definition, schedule)
) STRICT, WITHOUT ROWID;

-- Consecutive slots that became the same. A slot that became a job has a row of its own.
CREATE TABLE fires (
    id         INTEGER PRIMARY KEY,
    definition TEXT NOT NULL,
    schedule   TEXT NOT NULL,
    first_slot INTEGER NOT NULL,
    last_slot  INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    exact      INTEGER NOT NULL,    -- 0: there are at least so many
    verdict    TEXT NOT NULL,       -- fired, caught_up, skipped, missed
    reason     TEXT,
    job        INTEGER,             -- that it became, or that was in its way
    at         INTEGER NOT NULL,    -- when the last of the slots was decided
    UNIQUE (definition, schedule, first_slot)
) STRICT;

CREATE INDEX fires_by_definition ON fires (definition);
CREATE INDEX fires_by_age ON fires (at);
CREATE UNIQUE INDEX fires_by_job ON fires (job) WHERE reason IS NULL;

CREATE TRIGGER fired_slots_stay_fired BEFORE UPDATE ON fires WHEN OLD.reason IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a slot that became a job never changes');
END;

CREATE TRIGGER cursors_never_go_back BEFORE UPDATE ON schedules WHEN NEW.cursor < OLD.cursor
BEGIN
    SELECT RAISE(ABORT, 'the cursor of a schedule never goes back');
END;
