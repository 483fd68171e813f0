-- Retention by definition. As with `blocks`, a row for each 4,096 jobs instead of an index entry for each job; here for each definition,
-- and apart for ends that are good (succeeded, cancelled) and bad (failed, expired, lost).
CREATE TABLE definition_ends (
    name       INTEGER NOT NULL,           -- of the definition, by its first revision
    is_bad     INTEGER NOT NULL,
    block      INTEGER NOT NULL,
    oldest_end INTEGER,                    -- no job that may be deleted ended before it; null: there is none
    held       INTEGER NOT NULL DEFAULT 0, -- ended jobs before it that something still refers to, when they were last looked at
    looked_at  INTEGER,
    PRIMARY KEY (name, is_bad, block)
) STRICT, WITHOUT ROWID;

CREATE INDEX definition_ends_by_age ON definition_ends (name, is_bad, oldest_end) WHERE oldest_end IS NOT NULL;
CREATE INDEX definition_ends_held ON definition_ends (name, is_bad) WHERE held > 0;
CREATE INDEX definition_ends_by_block ON definition_ends (block);

-- How many ended jobs of a definition are kept. A parent with its members counts once.
CREATE TABLE definition_totals (
    name   INTEGER NOT NULL,
    is_bad INTEGER NOT NULL,
    ended  INTEGER NOT NULL,
    PRIMARY KEY (name, is_bad)
) STRICT, WITHOUT ROWID;

INSERT INTO definition_ends (name, is_bad, block, oldest_end)
WITH names (id, name) AS (SELECT d.id, (SELECT min(f.id) FROM definitions f WHERE f.name = d.name) FROM definitions d)
SELECT n.name, e.state IN (7, 9, 10), e.id >> 12, min(e.ended_at) FROM ended e JOIN names n ON n.id = e.definition
WHERE NOT EXISTS (SELECT 1 FROM members m JOIN parents p ON p.job = m.parent WHERE m.job = e.id) GROUP BY 1, 2, 3;

INSERT INTO definition_totals (name, is_bad, ended)
WITH names (id, name) AS (SELECT d.id, (SELECT min(f.id) FROM definitions f WHERE f.name = d.name) FROM definitions d)
SELECT n.name, e.state IN (7, 9, 10), count(*) FROM ended e JOIN names n ON n.id = e.definition
WHERE NOT EXISTS (SELECT 1 FROM members m JOIN parents p ON p.job = m.parent WHERE m.job = e.id) GROUP BY 1, 2;
