-- Ids of the GPUs that attempts hold, joined by commas. A row counts while its attempt is the current one of its job, or was lost and its
-- container may still exist; rows of others are deleted when the next one is added.
CREATE TABLE gpus (
    job   INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    ids   TEXT NOT NULL,
    PRIMARY KEY (job, fence)
) STRICT, WITHOUT ROWID;
