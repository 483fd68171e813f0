-- Live jobs that are not queued, by state: `state=running` among millions of queued jobs reads only what it lists. Queued jobs (2) are
-- left out, so that adding a job costs nothing.
CREATE INDEX jobs_by_state ON jobs (state) WHERE state <> 2;

-- Forgotten workers: their rows go once no kept job has an attempt on them.
CREATE INDEX workers_forgotten ON workers (id) WHERE forgotten;
