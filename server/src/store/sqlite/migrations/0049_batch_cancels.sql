-- The first requester of the cancel of a whole batch, and when it was. A start goes on with the members that have not ended.
ALTER TABLE batches ADD COLUMN cancelled_by TEXT;
ALTER TABLE batches ADD COLUMN cancelled_at INTEGER;
