-- A job may come after all members of a batch. The batch stands in its rows as the negative number of its first job: that job has a row of
-- its own if both are waited for.
ALTER TABLE dependencies RENAME COLUMN on_job TO predecessor;
