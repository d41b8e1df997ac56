SELECT id, consumer_group, key_scheme FROM {schema}.scope WHERE name = $1
