INSERT INTO workers (id, name, secret_hash, joined_at, seen_at, cordoned, slots, drain, drain_process, drain_deadline, labels,
    incarnation, process, join_token, granted, revoked_at, cordoned_at, cordoned_by, cordon_reason, cordoned_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, secret_hash = excluded.secret_hash, joined_at = excluded.joined_at,
    seen_at = excluded.seen_at, cordoned = excluded.cordoned, slots = excluded.slots, drain = excluded.drain,
    drain_process = excluded.drain_process, drain_deadline = excluded.drain_deadline, labels = excluded.labels,
    incarnation = excluded.incarnation, process = excluded.process, forgotten = 0,
    join_token = excluded.join_token, granted = excluded.granted, revoked_at = excluded.revoked_at,
    cordoned_at = excluded.cordoned_at, cordoned_by = excluded.cordoned_by, cordon_reason = excluded.cordon_reason,
    cordoned_until = excluded.cordoned_until
