-- When a cordon ends by itself. Null: an operator ends it.
ALTER TABLE workers ADD COLUMN cordoned_until INTEGER;
-- When the connection of a worker last ended without its leaving. It is lost if that is later than its last Hello, which is at `seen_at` or before.
ALTER TABLE workers ADD COLUMN lost_at INTEGER;
