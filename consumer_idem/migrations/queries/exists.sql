SELECT to_regclass('{schema}.schema_version') IS NOT NULL AS exists
