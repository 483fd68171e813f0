-- Lists by an exit code of success_exit_codes. Nearly all successes have the code 0, and pay nothing.
CREATE INDEX ended_well_by_exit_code ON ended (exit_code) WHERE state = 6 AND exit_code <> 0;
