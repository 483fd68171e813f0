-- Lists of the jobs that a schedule has made.
CREATE INDEX fires_by_schedule ON fires (schedule, job, definition) WHERE reason IS NULL;
