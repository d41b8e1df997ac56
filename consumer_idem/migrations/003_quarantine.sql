ALTER TABLE {schema}.quarantine
    -- The values of the fields that the source keeps, of this copy; those of the copy that holds the key are in its inbox row.
    ADD COLUMN kept json,
    -- So many releases were begun by a worker itself, at release_at. Counted before the handler runs, so that a crash is counted too.
    ADD COLUMN releases int NOT NULL DEFAULT 0;

CREATE INDEX quarantine_due ON {schema}.quarantine (release_at) WHERE state = 'open' AND release_at IS NOT NULL;

-- What operators, and workers at release_at, did to entries, and what came of it. It is deleted with its entry.
CREATE TABLE {schema}.quarantine_audit (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entry     bigint NOT NULL REFERENCES {schema}.quarantine ON DELETE CASCADE,
    action    text NOT NULL CHECK (action IN ('release', 'discard')),
    operator  text NOT NULL,
    note      text NOT NULL DEFAULT '',
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What became of the message; NULL for a discard.
    outcome   text,
    error     text NOT NULL DEFAULT '',
    -- The id under which a conflict was handled as a message of its own.
    new_id    text,
    -- The payload that the handler was given instead of the original.
    edited    bytea,
    -- The transaction that settled the entry; NULL for one that was rolled back.
    attempt   uuid
);
CREATE INDEX quarantine_audit_entry ON {schema}.quarantine_audit (entry);

INSERT INTO {schema}.schema_version (version, works_from) VALUES (3, 2);
