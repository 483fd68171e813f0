-- The job of a definition that ended last, beside the number of its ended jobs, which is written with each end anyway. Absent: unknown.
ALTER TABLE definition_totals ADD COLUMN last_end INTEGER;
ALTER TABLE definition_totals ADD COLUMN last_job INTEGER;

UPDATE definition_totals SET (last_end, last_job) = (last.ended_at, last.id)
FROM (
    WITH names (id, name) AS (SELECT d.id, (SELECT min(f.id) FROM definitions f WHERE f.name = d.name) FROM definitions d)
    SELECT n.name, e.state IN (7, 9, 10) AS is_bad, max(e.ended_at) AS ended_at, e.id
    FROM ended e JOIN names n ON n.id = e.definition
    WHERE NOT EXISTS (SELECT 1 FROM members m JOIN parents p ON p.job = m.parent WHERE m.job = e.id) GROUP BY 1, 2
) last
WHERE last.name = definition_totals.name AND last.is_bad = definition_totals.is_bad;
