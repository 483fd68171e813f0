-- A message may be about the end of a batch. Each end has a message of its own, so those are outside of the index of open messages.
ALTER TABLE notifications ADD COLUMN batch INTEGER;

DROP INDEX notifications_open;
CREATE UNIQUE INDEX notifications_open ON notifications (definition, target, occasion)
    WHERE state = 'waiting' AND tries = 0 AND batch IS NULL;
CREATE INDEX notifications_waiting_of_batches ON notifications (definition, target, occasion)
    WHERE state = 'waiting' AND batch IS NOT NULL;
