INSERT INTO {schema}.scope (name, consumer_group, key_scheme) VALUES ($1, $2, $3::smallint) ON CONFLICT (name) DO NOTHING
