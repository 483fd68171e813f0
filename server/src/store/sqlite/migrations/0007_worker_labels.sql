-- Labels that an operator laid over a worker's own: JSON, a list of names and values; null if there are none.
ALTER TABLE workers ADD COLUMN labels TEXT;
