-- Labels are found by what their jobs' details say: the table itself is in the order of their names.
DELETE FROM labels WHERE (name, value, job) IN (
    SELECT json_extract(label.value, '$[0]'), json_extract(label.value, '$[1]'), details.job
    FROM details, json_each(details.labels) AS label WHERE details.job BETWEEN ?1 AND ?2)
