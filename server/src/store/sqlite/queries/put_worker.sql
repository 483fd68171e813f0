INSERT INTO workers (id, name, secret_hash, joined_at, seen_at, cordoned, slots) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, secret_hash = excluded.secret_hash, joined_at = excluded.joined_at,
    seen_at = excluded.seen_at, cordoned = excluded.cordoned, slots = excluded.slots, forgotten = 0
