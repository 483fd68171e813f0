-- The time that retention last went by: a wall clock that is far ahead of it is not believed at once.
ALTER TABLE installation ADD COLUMN retention_by INTEGER;
