SELECT payment_id FROM {schema}.refusal
