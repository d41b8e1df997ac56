SELECT DISTINCT topic FROM {schema}.outbox
