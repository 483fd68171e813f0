INSERT INTO blocks (block, oldest, newest) VALUES (?1, ?2, ?3)
ON CONFLICT (block) DO UPDATE SET oldest = min(oldest, excluded.oldest), newest = max(newest, excluded.newest)
