INSERT INTO {schema}.fingerprint_version (source, version, content) VALUES ($1::int, $2::smallint, $3)
ON CONFLICT (source, version) DO UPDATE SET content = fingerprint_version.content
RETURNING content
