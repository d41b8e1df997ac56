INSERT INTO {schema}.topic (name, incarnation, kafka_id) VALUES ($1, $2::int, $3::uuid) ON CONFLICT DO NOTHING
