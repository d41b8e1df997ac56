INSERT INTO {schema}.answer (key_hash, code, detail)
SELECT key_hash, code, detail::json FROM unnest($1::uuid[], $2::text[], $3::text[]) AS answer (key_hash, code, detail)
