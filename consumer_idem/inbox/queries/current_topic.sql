SELECT id, incarnation, kafka_id FROM {schema}.topic WHERE name = $1 ORDER BY incarnation DESC LIMIT 1
