-- Records that the relays could publish now: parked ones, those behind them, and those of held topics do not count.
SELECT count(*) AS depth, coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 AS age
FROM (
    SELECT next.created_at
    FROM {schema}.outbox AS next
    WHERE next.state = 'p'
      AND next.topic NOT IN (SELECT topic FROM {schema}.outbox_hold)
      AND NOT EXISTS (
          SELECT FROM {schema}.outbox AS parked
          WHERE parked.state = 'x' AND parked.shard = next.shard AND parked.id < next.id
            AND parked.topic = next.topic AND parked.key = next.key
      )
    ORDER BY next.id
    LIMIT $1::bigint
) AS waiting
