-- A slot that was left out may become a job later, by a backfill: a row of its own beside the one that left it out. A slot becomes at most
-- one job.
CREATE TABLE fires_next (
    id         INTEGER PRIMARY KEY,
    definition TEXT NOT NULL,
    schedule   TEXT NOT NULL,
    first_slot INTEGER NOT NULL,
    last_slot  INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    exact      INTEGER NOT NULL,    -- 0: there are at least so many
    verdict    TEXT NOT NULL,       -- fired, caught_up, backfilled, skipped, missed
    reason     TEXT,                -- absent: it became a job
    job        INTEGER,             -- that it became, or that was in its way
    at         INTEGER NOT NULL     -- when the last of the slots was decided
) STRICT;

INSERT INTO fires_next SELECT id, definition, schedule, first_slot, last_slot, count, exact, verdict, reason, job, at FROM fires;
DROP TABLE fires;
ALTER TABLE fires_next RENAME TO fires;

CREATE UNIQUE INDEX fires_by_slot ON fires (definition, schedule, first_slot) WHERE verdict <> 'backfilled';
CREATE UNIQUE INDEX fires_once ON fires (definition, schedule, first_slot) WHERE reason IS NULL;
CREATE INDEX fires_by_definition ON fires (definition);
CREATE INDEX fires_by_age ON fires (at);
CREATE UNIQUE INDEX fires_by_job ON fires (job) WHERE reason IS NULL;

CREATE TRIGGER fired_slots_stay_fired BEFORE UPDATE ON fires WHEN OLD.reason IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a slot that became a job never changes');
END;

-- Slots up to here may have become jobs of which the ledger has no row any more: retention deleted it, or the store was restored.
ALTER TABLE schedules ADD COLUMN forgotten_until INTEGER;
UPDATE schedules SET forgotten_until =
    (SELECT max(last_slot) FROM fires
     WHERE fires.definition = schedules.definition AND fires.schedule = schedules.schedule AND fires.reason = 'restored');
