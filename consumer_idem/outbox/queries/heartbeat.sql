-- The notification tells the relay that its own listener still hears.
WITH beat AS (
    INSERT INTO {schema}.outbox_relay (owner, lease_until) VALUES ($1::uuid, clock_timestamp() + $2::interval)
    ON CONFLICT (owner) DO UPDATE SET lease_until = excluded.lease_until
)
SELECT pg_notify('{schema}_outbox', 'ping ' || $1::uuid) WHERE $3::boolean
