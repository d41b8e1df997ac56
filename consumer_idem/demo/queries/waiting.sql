SELECT count(*) FROM {schema}.outbox
