UPDATE {schema}.outbox_shard SET owner = NULL WHERE owner = $1::uuid AND shard = ANY ($2::smallint[])
