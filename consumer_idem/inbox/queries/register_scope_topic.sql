INSERT INTO {schema}.scope_topic (scope, topic) VALUES ($1::int, $2) ON CONFLICT DO NOTHING
