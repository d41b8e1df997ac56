-- A settled message by which the log is known again: its offset, and the epoch of the leader that wrote it. Both NULL: none is known.
-- Beside each other and not implied by next_offset, since builds before this one move that and know nothing of marks.
ALTER TABLE {schema}.progress ADD COLUMN mark_offset bigint, ADD COLUMN mark_epoch int;

INSERT INTO {schema}.schema_version (version, works_from) VALUES (5, 2);
