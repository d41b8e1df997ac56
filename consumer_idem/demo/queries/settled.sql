SELECT (SELECT count(*) FROM {schema}.payment) + (SELECT count(*) FROM {schema}.refusal)
