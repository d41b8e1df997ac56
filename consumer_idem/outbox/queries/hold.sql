INSERT INTO {schema}.outbox_hold (topic, owner, error)
SELECT topic, $1::uuid, error FROM unnest($2::text[], $3::text[]) AS held (topic, error)
WHERE EXISTS (SELECT FROM {schema}.outbox_relay WHERE owner = $1::uuid)
ON CONFLICT (topic, owner) DO UPDATE SET error = excluded.error
