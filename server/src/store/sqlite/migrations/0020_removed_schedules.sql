-- Schedules that left jobs.yaml, for retention.
CREATE INDEX schedules_removed ON schedules (removed_at) WHERE removed_at IS NOT NULL;

-- Slots up to here may have become jobs of schedules whose rows are gone. One that is seen again takes it as its own `forgotten_until`.
ALTER TABLE installation ADD COLUMN schedules_forgotten_until INTEGER;
