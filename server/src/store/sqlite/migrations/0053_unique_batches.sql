-- The unique key of a batch, the answer that its request chose if the key was taken, and the batch that took its key before it had ended. At most
-- one batch with a key has neither ended nor been replaced; a large one that is being made does not count.
ALTER TABLE batches ADD COLUMN unique_key TEXT;
ALTER TABLE batches ADD COLUMN on_duplicate TEXT;
ALTER TABLE batches ADD COLUMN replaced_by INTEGER;
CREATE INDEX batches_by_unique_key ON batches (unique_key, id) WHERE unique_key IS NOT NULL;
-- A key such as that of a branch has many batches that have ended.
CREATE INDEX live_batches_by_unique_key ON batches (unique_key)
    WHERE unique_key IS NOT NULL AND ended_at IS NULL AND replaced_by IS NULL;
