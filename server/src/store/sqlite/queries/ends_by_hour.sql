-- Ends by hour since an instant. Only blocks of jobs with such an end are read.
SELECT e.ended_at / 3600000, sum(e.state = 6), sum(e.state IN (7, 9, 10))
FROM blocks b CROSS JOIN ended e ON e.id BETWEEN b.block << 12 AND ((b.block + 1) << 12) - 1
WHERE b.newest_end >= ?1 AND e.ended_at >= ?1
GROUP BY 1 ORDER BY 1
