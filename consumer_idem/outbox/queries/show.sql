SELECT value, headers::text AS headers, message_time FROM {schema}.outbox WHERE id = $1::bigint
