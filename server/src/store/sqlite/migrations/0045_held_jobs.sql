-- Retention leaves ended jobs that a live job waits for, and looks at their block again later. The oldest end that was kept anyway when it
-- last did so; null: it left none.
ALTER TABLE blocks ADD COLUMN held_at_cutoff INTEGER;
CREATE INDEX blocks_held ON blocks (held_at_cutoff) WHERE held_at_cutoff IS NOT NULL;
