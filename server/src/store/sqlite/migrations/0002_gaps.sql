-- Numbers of jobs that were never given here. Another life of this database may have given them: it was restored from a backup, or
-- a worker has brought an attempt of a job that this database does not have. What carries such a number is not ours to stop.
CREATE TABLE gaps (
    after     INTEGER PRIMARY KEY,          -- the last number before
    until     INTEGER NOT NULL,             -- the last number left out
    at        INTEGER NOT NULL,             -- when that was recorded
    backup_of INTEGER,                      -- of a restore: when the backup was made; null: a worker told
    epoch     INTEGER NOT NULL              -- the term in which that happened; of a restore: the one before the first start
) STRICT;
