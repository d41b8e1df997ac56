-- Only the quarantined copy's own claim: a release claims the key anew in the same transaction.
DELETE FROM {schema}.inbox
WHERE key_hash = $1::uuid AND status = 'q' AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint
