-- Entries that have no id, in every state, and whose key, value or headers hold every pattern, oldest first. So that it ends in time, only
-- the newest $5 are looked at, and 16 kB of each. Bytes are searched as `encode` writes them: not all are text.
SELECT id, state, reason, error, fields, topic_name AS topic, partition, "offset", message_id, attempts, release_at, quarantined_at, settled_at
FROM (
    SELECT entry.*, topic.name AS topic_name
    FROM {schema}.quarantine AS entry
    JOIN {schema}.topic ON topic.id = entry.topic
    LEFT JOIN {schema}.scope ON scope.id = entry.scope
    WHERE entry.key_hash IS NULL AND entry.consumer_group = $1 AND topic.name = ANY ($2::text[])
      AND (scope.name IS NULL OR scope.name = ANY ($3::text[]))
    ORDER BY entry.id DESC
    LIMIT $5::bigint
) AS newest
WHERE NOT EXISTS (
    SELECT FROM unnest($4::text[]) AS pattern
    WHERE concat_ws(' ', encode(substring(key FROM 1 FOR 16384), 'escape'), encode(substring(value FROM 1 FOR 16384), 'escape'),
                    encode(convert_to(headers::text, 'UTF8'), 'escape')) !~ pattern
)
ORDER BY id
LIMIT $6::bigint
