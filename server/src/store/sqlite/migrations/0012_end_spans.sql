-- The latest end within the block, rounded up to a minute: lists by end read only the blocks that can have such jobs.
ALTER TABLE blocks ADD COLUMN newest_end INTEGER;
UPDATE blocks SET newest_end =
    (SELECT (max(ended_at) / 60000 + 1) * 60000 FROM ended
     WHERE id BETWEEN blocks.block << 12 AND ((blocks.block + 1) << 12) - 1);
