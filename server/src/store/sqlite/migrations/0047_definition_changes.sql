-- The history of the definitions: a row for each load that changed some. It has names only, and no values of the jobs file.
CREATE TABLE definition_changes (
    id             INTEGER PRIMARY KEY,
    at             INTEGER NOT NULL,
    cause          TEXT NOT NULL,            -- start, reload, watch or deploy
    made_by        TEXT,                     -- the name of the token, or of the user
    reason         TEXT,
    before         TEXT,                     -- revision of the whole set; null for the first row
    after          TEXT NOT NULL,
    added          TEXT NOT NULL,            -- names, as JSON: {"names": […], "more": 0}
    changed        TEXT NOT NULL,
    removed        TEXT NOT NULL,
    policy_changed INTEGER NOT NULL
) STRICT;

-- The definitions after the last row, by which a start sees that it loads others; and the deploy that was about to replace the jobs file.
CREATE TABLE definition_load (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    loaded    TEXT,                          -- names with hashes, as JSON
    deploying TEXT                           -- who, why and the expected revision, as JSON
) STRICT;
INSERT INTO definition_load (id) VALUES (1);
