-- NULL: whatever it is, see list.sql. Errors are alike if their first lines differ only in words with a digit (ids, amounts, positions)
-- and in what stands in single quotes, as Python shows values; not in their first word, which is the error's type.
WITH entry AS (
    SELECT *, regexp_replace(split_part(error, E'\n', 1), $$(?<=[\s("'=])[\w./:@#|+-]*\d[\w./:@#|+-]*|(?<!\w)'[^']*'(?!\w)$$, '…', 'g') AS alike
    FROM {schema}.quarantine
)
SELECT entry.state, entry.reason, scope.name AS handler,
       CASE WHEN min(entry.error COLLATE "C") = max(entry.error COLLATE "C") THEN min(entry.error COLLATE "C") ELSE entry.alike END AS error,
       min(entry.error COLLATE "C") <> max(entry.error COLLATE "C") AS errors_differ,
       count(*) AS entries, min(entry.id) AS first_id,
       min(entry.quarantined_at) AS first_at, max(entry.quarantined_at) AS last_at, min(entry.release_at) AS release_at,
       array_agg(DISTINCT topic.name) AS topics, count(*) OVER () AS all_groups, sum(count(*)) OVER ()::bigint AS all_entries
FROM entry
JOIN {schema}.topic ON topic.id = entry.topic
LEFT JOIN {schema}.scope ON scope.id = entry.scope
WHERE ($1::text IS NULL OR entry.state = $1::text)
  AND ($2::text IS NULL OR entry.reason = $2::text)
  AND ($3::text IS NULL OR scope.name = $3::text)
  AND ($4::text IS NULL OR topic.name = $4::text)
  AND ($5::timestamptz IS NULL OR entry.quarantined_at >= $5::timestamptz)
  AND ($6::text IS NULL OR entry.message_id = $6::text)
GROUP BY entry.state, entry.reason, scope.name, entry.alike
ORDER BY last_at DESC, first_id DESC
LIMIT $7::bigint
