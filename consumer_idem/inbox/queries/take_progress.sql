-- The row is read before it is changed, for the owner that it had; PostgreSQL 15 cannot return old values.
WITH before AS (
    SELECT owner, next_offset, batch_limit FROM {schema}.progress
    WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int FOR UPDATE
)
UPDATE {schema}.progress
SET epoch = progress.epoch + 1, owner = $4::uuid, batch_limit = $5::int, updated_at = clock_timestamp()
FROM before
WHERE progress.consumer_group = $1 AND progress.topic = $2::int AND progress.partition = $3::int
RETURNING progress.epoch, progress.next_offset, before.owner AS previous_owner, before.batch_limit AS previous_limit,
    progress.mark_offset, progress.mark_epoch
