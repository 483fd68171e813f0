-- The parameters that a submission gave: [[name, value], ...], with true as a third member for a secret one.
ALTER TABLE details ADD COLUMN params TEXT;
-- What follows from the parameters of its definition: {"environment": [[name, value]], "variables": [...], "args": [...]}.
ALTER TABLE details ADD COLUMN filled_in TEXT;
