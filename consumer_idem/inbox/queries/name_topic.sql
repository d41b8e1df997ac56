UPDATE {schema}.topic SET kafka_id = $2::uuid WHERE id = $1::int AND kafka_id IS NULL
