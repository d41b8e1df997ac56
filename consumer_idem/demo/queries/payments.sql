SELECT id, account, amount FROM {schema}.payment
