-- Ids of the GPUs that current attempts hold, joined by commas. A row counts while the attempt with this fence is the current one of its
-- job; rows of others are deleted when the next one is added.
CREATE TABLE gpus (
    job   INTEGER PRIMARY KEY,
    fence INTEGER NOT NULL,
    ids   TEXT NOT NULL
);
