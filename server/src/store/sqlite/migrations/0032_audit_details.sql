-- The thing that a request acted on, and the kind of its change: the target alone does not say which token was made.
ALTER TABLE audit ADD COLUMN object TEXT;
ALTER TABLE audit ADD COLUMN detail TEXT;
