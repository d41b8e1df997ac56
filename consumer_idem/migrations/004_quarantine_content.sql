-- Another message at the same position is another entry: where a topic is made anew and nobody can tell, as in an own consumer loop, its
-- offsets come again. What is delivered again after a crash is still one entry.
DO $$
DECLARE
    positions text := (SELECT conname FROM pg_constraint WHERE conrelid = '{schema}.quarantine'::regclass AND contype = 'u');
BEGIN
    EXECUTE format('ALTER TABLE {schema}.quarantine DROP CONSTRAINT %I', positions);
END $$;

CREATE UNIQUE INDEX quarantine_message ON {schema}.quarantine (
    consumer_group, scope, topic, partition, "offset", message_time, sha256(key), sha256(value), md5(headers::text)
) NULLS NOT DISTINCT;

INSERT INTO {schema}.schema_version (version, works_from) VALUES (4, 2);
