-- The relay reads in id order along the primary key; a second index would cost every insert and every delete.
DROP INDEX {schema}.outbox_shard_id;

-- Parked records are few; what they block is looked up here. No pending row is ever in this index.
CREATE INDEX outbox_parked ON {schema}.outbox (shard) WHERE state = 'x';

-- One row per live relay process. Its lease is the lease of all its shards: a heartbeat writes one row, not one per shard.
CREATE TABLE {schema}.outbox_relay (
    owner        uuid PRIMARY KEY,
    lease_until  timestamptz NOT NULL,
    -- Asleep: a transaction that adds to one of its shards sends it a NOTIFY.
    idle         boolean NOT NULL DEFAULT false,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

ALTER TABLE {schema}.outbox_shard
    DROP COLUMN lease_until,
    -- Whoever makes old rows of a shard pending again, or frees a key, counts this up: relays then look from the start.
    ADD COLUMN change bigint NOT NULL DEFAULT 0,
    -- A relay that is gone owns nothing.
    ADD FOREIGN KEY (owner) REFERENCES {schema}.outbox_relay ON DELETE SET NULL;

-- Topics that do not take records now (missing, not authorised), as each relay found them.
CREATE TABLE {schema}.outbox_hold (
    topic  text NOT NULL,
    owner  uuid NOT NULL REFERENCES {schema}.outbox_relay ON DELETE CASCADE,
    error  text NOT NULL,
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, owner)
);

-- What operators did to records, and what they did it to. The value itself is not kept.
CREATE TABLE {schema}.outbox_audit (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action      text NOT NULL CHECK (action IN ('retry', 'drop')),
    operator    text NOT NULL,
    reason      text NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    record      bigint NOT NULL,
    message_id  uuid NOT NULL,
    topic       text NOT NULL,
    key         bytea,
    created_at  timestamptz NOT NULL,
    error       text
);

INSERT INTO {schema}.schema_version (version, works_from) VALUES (2, 2);
