-- When a pause ends by itself. Null: an operator ends it.
ALTER TABLE pauses ADD COLUMN until INTEGER;
