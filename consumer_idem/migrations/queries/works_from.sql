SELECT works_from FROM {schema}.schema_version ORDER BY version DESC LIMIT 1
