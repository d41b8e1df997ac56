CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE {schema}.schema_version (
    version       int PRIMARY KEY,
    -- The oldest migration a build may know and still work with these tables: what a rolling deploy needs.
    works_from    int NOT NULL,
    installed_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE {schema}.scope (
    id              int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name            text NOT NULL UNIQUE,
    consumer_group  text NOT NULL,
    key_scheme      smallint NOT NULL,
    -- The time from which the inbox knows every key of the scope; NULL: from the scope's first message.
    complete_since  timestamptz,
    registered_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE {schema}.scope_topic (
    scope  int NOT NULL REFERENCES {schema}.scope,
    topic  text NOT NULL,
    PRIMARY KEY (scope, topic)
);

CREATE TABLE {schema}.source (
    id    int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL UNIQUE
);

-- A topic that was deleted and made again is another topic: its offsets start anew, so it gets a row of its own.
CREATE TABLE {schema}.topic (
    id           int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL,
    incarnation  int NOT NULL DEFAULT 1,
    kafka_id     uuid,
    UNIQUE (name, incarnation)
);

CREATE TABLE {schema}.fingerprint_version (
    source         int NOT NULL REFERENCES {schema}.source,
    version        smallint NOT NULL,
    -- The fields and the canonical form: the same version with another content is refused.
    content        text NOT NULL,
    registered_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, version)
);

-- One row per idempotency key that a scope has settled. Never partitioned by arrival time: a key is unique over all that is kept.
CREATE TABLE {schema}.inbox (
    key_hash             uuid PRIMARY KEY,
    attempt_id           uuid NOT NULL,
    message_time         timestamptz,
    claimed_at           timestamptz NOT NULL DEFAULT statement_timestamp(),
    "offset"             bigint NOT NULL,
    scope                int NOT NULL,
    source               int NOT NULL,
    topic                int NOT NULL,
    partition            int NOT NULL,
    fingerprint_version  smallint NOT NULL,
    generation           smallint NOT NULL DEFAULT 0,
    -- a: applied, r: rejected, q: quarantined, d: discarded
    status               "char" NOT NULL DEFAULT 'a',
    message_id           text NOT NULL,
    tenant               text,
    fingerprint          bytea NOT NULL,
    field_digests        bytea NOT NULL,
    kept                 json
) WITH (fillfactor = 95);

CREATE FUNCTION {schema}.refuse_unsealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('idem.sealed', true) IS DISTINCT FROM NEW.attempt_id::text THEN
        RAISE EXCEPTION 'consumer_idem: this transaction holds claims and was not sealed'
            USING ERRCODE = 'raise_exception',
                  HINT = 'Something committed the transaction of a handler. Remove the raw COMMIT; the library commits.';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER sealed AFTER INSERT ON {schema}.inbox
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_unsealed();

CREATE TABLE {schema}.answer (
    key_hash     uuid PRIMARY KEY,
    code         text NOT NULL,
    detail       json,
    answered_at  timestamptz NOT NULL DEFAULT statement_timestamp()
);

CREATE TABLE {schema}.duplicate (
    key_hash   uuid NOT NULL,
    topic      int NOT NULL,
    partition  int NOT NULL,
    "offset"   bigint NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT statement_timestamp()
);
CREATE INDEX duplicate_key ON {schema}.duplicate (key_hash);

CREATE TABLE {schema}.progress (
    consumer_group  text NOT NULL,
    topic           int NOT NULL REFERENCES {schema}.topic,
    partition       int NOT NULL,
    next_offset     bigint NOT NULL,
    first_offset    bigint NOT NULL,
    epoch           bigint NOT NULL DEFAULT 1,
    -- The process that holds the partition; NULL after a clean stop.
    owner           uuid,
    -- The most messages that the owner handles in one transaction: so many may be in doubt when it dies.
    batch_limit     int NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_group, topic, partition)
) WITH (fillfactor = 50);

-- Lone runs of a message that failed, and marks of runs that may have killed their process.
CREATE TABLE {schema}.attempt (
    consumer_group  text NOT NULL,
    topic           int NOT NULL,
    partition       int NOT NULL,
    "offset"        bigint NOT NULL,
    failures        int NOT NULL DEFAULT 0,
    crashes         int NOT NULL DEFAULT 0,
    last_error      text,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_group, topic, partition, "offset")
);

CREATE TABLE {schema}.quarantine (
    id                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state                text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'released', 'discarded', 'closed')),
    reason               text NOT NULL,
    error                text NOT NULL DEFAULT '',
    -- The fields of the fingerprint that differ from the copy that holds the key.
    fields               text[] NOT NULL DEFAULT '{}',
    consumer_group       text NOT NULL,
    scope                int,
    source               int,
    key_hash             uuid,
    tenant               text,
    message_id           text,
    fingerprint          bytea,
    fingerprint_version  smallint,
    topic                int NOT NULL REFERENCES {schema}.topic,
    partition            int NOT NULL,
    "offset"             bigint NOT NULL,
    message_time         timestamptz,
    key                  bytea,
    value                bytea,
    headers              json,
    attempts             int NOT NULL DEFAULT 0,
    release_at           timestamptz,
    quarantined_at       timestamptz NOT NULL DEFAULT statement_timestamp(),
    settled_at           timestamptz,
    UNIQUE NULLS NOT DISTINCT (consumer_group, scope, topic, partition, "offset")
);
CREATE INDEX quarantine_open ON {schema}.quarantine (quarantined_at) WHERE state = 'open';
CREATE INDEX quarantine_key ON {schema}.quarantine (key_hash) WHERE key_hash IS NOT NULL;

CREATE TABLE {schema}.outbox (
    id            bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    message_id    uuid NOT NULL,
    shard         smallint NOT NULL,
    -- p: pending, x: parked (the record can never be sent; it blocks its key), h: held by a replay run
    state         "char" NOT NULL DEFAULT 'p',
    run           int,
    created_at    timestamptz NOT NULL DEFAULT statement_timestamp(),
    message_time  timestamptz,
    topic         text NOT NULL,
    type          text,
    source        text NOT NULL,
    key           bytea,
    value         bytea,
    -- The user's own and the trace headers: [[name, value], …]; ce_* are made from the columns above.
    headers       json,
    error         text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_delay = 0, autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX outbox_shard_id ON {schema}.outbox (shard, id);

CREATE TABLE {schema}.outbox_shard (
    shard        smallint PRIMARY KEY,
    owner        uuid,
    epoch        bigint NOT NULL DEFAULT 0,
    lease_until  timestamptz
);
INSERT INTO {schema}.outbox_shard (shard) SELECT generate_series(0, 63);

INSERT INTO {schema}.schema_version (version, works_from) VALUES (1, 1);
