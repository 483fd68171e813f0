-- Join tokens, and what a worker got by the one that it joined with.
ALTER TABLE tokens ADD COLUMN uses INTEGER;          -- workers that may join by it; null: any number
ALTER TABLE tokens ADD COLUMN labels TEXT;           -- labels that it grants: JSON, a list of names and values; null if there are none
ALTER TABLE tokens ADD COLUMN joined INTEGER NOT NULL DEFAULT 0;  -- workers that have joined by it, forgotten ones too

ALTER TABLE workers ADD COLUMN join_token INTEGER;   -- null: it joined by none of the table, or before this was kept
ALTER TABLE workers ADD COLUMN granted TEXT;         -- labels that the token granted, in the same form
ALTER TABLE workers ADD COLUMN revoked_at INTEGER;
