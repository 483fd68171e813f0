-- What a server of the first schema has written. Each later schema begins with these columns, so the rows stand for a store of any of them.
-- Job 1 succeeded at its second attempt, 2 failed, 3 is running, 4 waits with labels and own arguments.
INSERT INTO definitions VALUES (1, x'00112233445566778899aabbccddeeff', 'resize', '{"image":"busybox"}');
INSERT INTO workers (id, name, secret_hash, joined_at, seen_at, cordoned, slots) VALUES (1, 'anna', zeroblob(32), 1000, 9000, 0, 4);
INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker, assigned_at, started_at,
    container, outcome, exit_code, closed_at, stdout_bytes, stderr_bytes, result, ended_at, confirmed)
VALUES (1, 1, 6, 5, 2000, 2000, 0, 2, 11, 111, 1, 3000, 3100, 'c11', 1, 0, 4000, 6, 0, '{"rows":3}', 4000, 1);
INSERT INTO past_attempts (job, number, fence, nonce, worker, assigned_at, started_at, container, outcome, exit_code, message, closed_at,
    stdout_bytes, stderr_bytes)
VALUES (1, 1, 10, 110, 1, 2100, 2200, 'c10', 2, 7, 'exit code 7', 2500, 0, 12);
INSERT INTO ended (id, definition, state, priority, created_at, due_at, details, attempts, fence, nonce, worker, assigned_at, started_at,
    container, outcome, exit_code, message, closed_at, stdout_bytes, stderr_bytes, ended_at, reason, confirmed)
VALUES (2, 1, 7, 0, 2000, 2000, 0, 1, 12, 112, 1, 3000, 3100, 'c12', 2, 3, 'exit code 3', 5000, 0, 0, 5000, 'exit code 3', 1);
INSERT INTO jobs (id, definition, state, priority, created_at, due_at, attempts, fence, nonce, worker, session, assigned_at, started_at, container)
VALUES (3, 1, 4, 0, 6000, 6000, 1, 13, 113, 1, 4294967297, 6100, 6200, 'c13');
INSERT INTO jobs (id, definition, state, priority, created_at, due_at, details) VALUES (4, 1, 2, -1, 7000, 7000, 3);
INSERT INTO details (job, labels, environment, args, input)
VALUES (4, '[["team","press"]]', '[["SIZE","big"]]', '["--fast"]', 'an input');
INSERT INTO labels VALUES ('team', 'press', 4);
INSERT INTO keys VALUES ('order-4', 4, 1, zeroblob(16), 7000);
INSERT INTO seen VALUES (1, 1, 0), (2, 1, 0);
INSERT INTO blocks (block, oldest, newest) VALUES (0, 2000, 7000);
UPDATE installation SET cluster = 77, epoch = 1, committed = 9, last_job = 4, last_fence = 13, last_worker = 1;
