-- Free shards up to the fair share: the members in the order of their names get one more each until all shards are given out.
WITH member AS (
    SELECT owner, row_number() OVER (ORDER BY owner) - 1 AS place, count(*) OVER () AS members FROM {schema}.outbox_relay
), fair AS (
    SELECT total / members + CASE WHEN place < total % members THEN 1 ELSE 0 END AS share
    FROM member, (SELECT count(*) AS total FROM {schema}.outbox_shard) AS shards
    WHERE owner = $1::uuid
), free AS (
    SELECT shard FROM {schema}.outbox_shard WHERE owner IS NULL
    ORDER BY shard
    LIMIT (SELECT greatest(share - (SELECT count(*) FROM {schema}.outbox_shard WHERE owner = $1::uuid), 0) FROM fair)
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE {schema}.outbox_shard AS owned SET owner = $1::uuid, epoch = epoch + 1
    FROM free WHERE owned.shard = free.shard
    RETURNING owned.shard, owned.epoch
)
SELECT fair.share::int AS share, held.shard, held.epoch
FROM fair
LEFT JOIN (
    SELECT shard, epoch FROM taken
    UNION ALL
    SELECT shard, epoch FROM {schema}.outbox_shard WHERE owner = $1::uuid
) AS held ON true
