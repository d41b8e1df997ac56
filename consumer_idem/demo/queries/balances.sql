SELECT id, balance FROM {schema}.account
