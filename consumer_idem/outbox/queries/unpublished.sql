SELECT record.id, record.message_id, record.topic, record.created_at, coalesce(record.error, hold.error) AS error,
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
WHERE record.message_id = ANY ($1::uuid[])
ORDER BY record.id
