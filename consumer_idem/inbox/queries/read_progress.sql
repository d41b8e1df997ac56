SELECT epoch, owner, next_offset FROM {schema}.progress
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int
