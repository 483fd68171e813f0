-- The retries of jobs that a schedule has made: each carries on the slot of its job, and has no row of its own in the ledger. Lists of the jobs
-- of a schedule find them here.
CREATE TABLE carried_slots (
    job        INTEGER PRIMARY KEY,
    definition TEXT NOT NULL,
    schedule   TEXT NOT NULL
) STRICT;
CREATE INDEX carried_slots_by_schedule ON carried_slots (schedule, job, definition);

-- A retry was told the slot by its variables.
INSERT INTO carried_slots (job, definition, schedule)
SELECT repeats.id, definitions.name, pair.value ->> 1
FROM (SELECT id, definition FROM jobs WHERE retry_of IS NOT NULL
      UNION ALL SELECT id, definition FROM ended WHERE retry_of IS NOT NULL) AS repeats
CROSS JOIN definitions ON definitions.id = repeats.definition
CROSS JOIN details ON details.job = repeats.id
CROSS JOIN json_each(details.environment) AS pair
WHERE pair.value ->> 0 = 'LONGSHORE_SCHEDULE_ID'
    AND EXISTS (SELECT 1 FROM json_each(details.environment) AS slot WHERE slot.value ->> 0 = 'LONGSHORE_SCHEDULED_AT')
ON CONFLICT DO NOTHING;
