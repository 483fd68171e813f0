-- The positions that members of a batch were told which repeat members of another one. The position of any other member follows from its number.
CREATE TABLE told_positions (
    job      INTEGER PRIMARY KEY,
    batch    INTEGER NOT NULL,
    position INTEGER NOT NULL
) STRICT;
CREATE INDEX told_positions_by_batch ON told_positions (batch, position);

INSERT INTO told_positions (job, batch, position)
SELECT repeats.id, repeats.batch, CAST(pair.value ->> 1 AS INTEGER)
FROM (SELECT id, batch FROM jobs WHERE retry_of IS NOT NULL AND batch IS NOT NULL
      UNION ALL SELECT id, batch FROM ended WHERE retry_of IS NOT NULL AND batch IS NOT NULL) AS repeats
CROSS JOIN details ON details.job = repeats.id
CROSS JOIN json_each(details.environment) AS pair
WHERE pair.value ->> 0 = 'LONGSHORE_INDEX'
ON CONFLICT DO NOTHING;
