-- Who cordoned or drained a worker, when and why; and who paused something and why. Null for those of an older version.
ALTER TABLE workers ADD COLUMN cordoned_at INTEGER;
ALTER TABLE workers ADD COLUMN cordoned_by TEXT;
ALTER TABLE workers ADD COLUMN cordon_reason TEXT;

ALTER TABLE pauses ADD COLUMN paused_by TEXT;
ALTER TABLE pauses ADD COLUMN reason TEXT;
