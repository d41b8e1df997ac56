SELECT EXISTS (SELECT FROM {schema}.quarantine_audit WHERE entry = $1::bigint AND attempt = $2::uuid) AS committed
