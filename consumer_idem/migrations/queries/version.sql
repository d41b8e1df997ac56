SELECT max(version) AS version FROM {schema}.schema_version
