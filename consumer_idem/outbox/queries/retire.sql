-- Its lease has run out. The row is the next relay's to bury; until there is one, what it found out about topics stays known.
WITH freed AS (
    UPDATE {schema}.outbox_shard SET owner = NULL WHERE owner = $1::uuid
)
UPDATE {schema}.outbox_relay SET lease_until = '-infinity', idle = false WHERE owner = $1::uuid
