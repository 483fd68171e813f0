-- Cancelled jobs (8) whose containers nobody knows to be gone. They are few, and asked for at each start.
CREATE INDEX ended_unconfirmed ON ended (worker) WHERE state = 8 AND confirmed = 0;

-- The one exception to "an ended job never changes": its cancel is confirmed later, and only so.
CREATE TRIGGER ended_is_confirmed_once BEFORE UPDATE OF confirmed ON ended
WHEN NOT (OLD.state = 8 AND OLD.confirmed = 0 AND NEW.confirmed = 1)
BEGIN
    SELECT RAISE(ABORT, 'an ended job never changes');
END;
