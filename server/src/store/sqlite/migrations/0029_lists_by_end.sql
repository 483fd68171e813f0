-- Lists by outcome and exit code. Success pays nothing for these: the first two have the jobs that wait for another attempt, the others
-- the jobs that did not succeed.
CREATE INDEX jobs_by_outcome ON jobs (outcome) WHERE outcome IS NOT NULL;
CREATE INDEX jobs_by_exit_code ON jobs (exit_code) WHERE exit_code IS NOT NULL;
CREATE INDEX ended_badly_by_outcome ON ended (state, outcome) WHERE state <> 6 AND outcome IS NOT NULL;
CREATE INDEX ended_badly_by_exit_code ON ended (state, exit_code) WHERE state <> 6 AND exit_code IS NOT NULL;
