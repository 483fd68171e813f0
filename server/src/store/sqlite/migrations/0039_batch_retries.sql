-- The batch whose members a batch repeats.
ALTER TABLE batches ADD COLUMN retry_of INTEGER;
CREATE INDEX batches_by_retry ON batches (retry_of) WHERE retry_of IS NOT NULL;
