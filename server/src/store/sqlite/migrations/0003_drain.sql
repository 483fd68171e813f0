-- A drain is a fact of the server, like a cordon.
ALTER TABLE workers ADD COLUMN drain INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workers ADD COLUMN drain_process INTEGER;   -- the start of the worker that is to leave; null: whichever connects next
ALTER TABLE workers ADD COLUMN drain_deadline INTEGER;
