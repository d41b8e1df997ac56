SELECT reason, message_id, fields, value FROM {schema}.quarantine
