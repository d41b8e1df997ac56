DELETE FROM {schema}.outbox_hold WHERE owner = $1::uuid AND topic = ANY ($2::text[])
