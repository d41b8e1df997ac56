UPDATE {schema}.outbox_relay SET idle = $2::boolean WHERE owner = $1::uuid
