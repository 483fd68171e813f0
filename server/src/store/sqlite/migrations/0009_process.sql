-- The process of a worker that was let in last: whoever comes as another one that is no later start must wait until that one is gone.
ALTER TABLE workers ADD COLUMN incarnation INTEGER;   -- which start of the worker it is; null: let in before this was kept
ALTER TABLE workers ADD COLUMN process INTEGER;       -- drawn when it began
