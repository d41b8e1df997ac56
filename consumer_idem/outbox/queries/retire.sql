DELETE FROM {schema}.outbox_relay WHERE owner = $1::uuid
