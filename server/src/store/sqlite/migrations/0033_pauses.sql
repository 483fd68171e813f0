-- Pauses hold back jobs, too: of the server, of a group of definitions, of a definition. A pause of a definition held back its schedules only,
-- and it becomes a pause of each of them, so that no job waits after an upgrade that would have started before it.
ALTER TABLE pauses RENAME TO former_pauses;

CREATE TABLE pauses (
    kind     TEXT NOT NULL,     -- server, schedules (all of them), group, definition, schedule
    name     TEXT NOT NULL,     -- of the group or the definition, or empty
    schedule TEXT NOT NULL,     -- its id, or empty
    since    INTEGER NOT NULL,
    PRIMARY KEY (kind, name, schedule)
) STRICT, WITHOUT ROWID;

INSERT INTO pauses (kind, name, schedule, since)
    SELECT 'schedules', '', '', since FROM former_pauses WHERE definition = '';
INSERT INTO pauses (kind, name, schedule, since)
    SELECT 'schedule', definition, schedule, since FROM former_pauses WHERE schedule <> '';
INSERT INTO pauses (kind, name, schedule, since)
    SELECT 'schedule', s.definition, s.schedule, p.since
    FROM former_pauses p JOIN schedules s ON s.definition = p.definition
    WHERE p.definition <> '' AND p.schedule = ''
    ON CONFLICT DO NOTHING;

DROP TABLE former_pauses;
