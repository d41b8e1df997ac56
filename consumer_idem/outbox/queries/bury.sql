DELETE FROM {schema}.outbox_relay
WHERE owner IN (SELECT owner FROM {schema}.outbox_relay WHERE lease_until < clock_timestamp() FOR UPDATE SKIP LOCKED)
