-- What retention needs, so that it finds what is due without looking at the rest. Why by blocks: docs/decisions, "retention goes by
-- blocks".

-- How many jobs have ended and are kept; and, only within a step of retention, until which end it deletes them.
ALTER TABLE installation ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
ALTER TABLE installation ADD COLUMN deletes_until INTEGER;
UPDATE installation SET ended = (SELECT count(*) FROM ended);

-- The earliest end within the block, of the jobs that are kept.
ALTER TABLE blocks ADD COLUMN oldest_end INTEGER;
UPDATE blocks SET oldest_end =
    (SELECT min(ended_at) FROM ended WHERE id BETWEEN blocks.block << 12 AND ((blocks.block + 1) << 12) - 1);
CREATE INDEX blocks_by_oldest_end ON blocks (oldest_end) WHERE oldest_end IS NOT NULL;
CREATE INDEX seen_by_block ON seen (block);

CREATE INDEX keys_by_age ON keys (at);
CREATE INDEX late_reports_by_age ON notes (at) WHERE kind = 2;

-- Late reports of a job beyond those that are kept as notes.
CREATE TABLE left_out (
    job          INTEGER PRIMARY KEY,
    late_reports INTEGER NOT NULL
) STRICT;

CREATE TRIGGER ended_goes_by_retention_only BEFORE DELETE ON ended
WHEN OLD.ended_at > coalesce((SELECT deletes_until FROM installation), -9223372036854775808)
BEGIN
    SELECT RAISE(ABORT, 'an ended job is deleted by retention only');
END;

CREATE TRIGGER past_goes_with_its_job_only BEFORE DELETE ON past_attempts
WHEN EXISTS (SELECT 1 FROM ended WHERE id = OLD.job) OR EXISTS (SELECT 1 FROM jobs WHERE id = OLD.job)
BEGIN
    SELECT RAISE(ABORT, 'a past attempt is deleted with its job only');
END;
