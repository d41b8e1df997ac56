-- $1 only this status (NULL: every one), $2 only this topic (NULL: every one), $3 only above this id, $4 at most so many (NULL: all),
-- $5 only records with these message ids (NULL: every one).
SELECT * FROM (
    SELECT record.id, record.message_id, record.topic, record.key, record.type, record.source, record.shard, record.run, record.created_at,
           octet_length(record.value) AS size,
           coalesce(record.error, hold.error) AS error,
           CASE WHEN record.state = 'x' THEN 'parked'
                WHEN record.state = 'h' THEN 'held'
                WHEN hold.error IS NOT NULL THEN 'topic-held'
                WHEN EXISTS (
                    SELECT FROM {schema}.outbox AS parked
                    WHERE parked.state = 'x' AND parked.shard = record.shard AND parked.id < record.id
                      AND parked.topic = record.topic AND parked.key = record.key
                ) THEN 'blocked'
                ELSE 'pending' END AS status
    FROM {schema}.outbox AS record
    LEFT JOIN (SELECT topic, min(error) AS error FROM {schema}.outbox_hold GROUP BY topic) AS hold
           ON hold.topic = record.topic AND record.state = 'p'
    WHERE ($2::text IS NULL OR record.topic = $2::text) AND record.id > $3::bigint
      AND ($5::uuid[] IS NULL OR record.message_id = ANY ($5::uuid[]))
) AS listed
WHERE $1::text IS NULL OR status = $1::text
ORDER BY id
LIMIT $4::bigint
