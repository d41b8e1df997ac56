SELECT progress.partition, progress.next_offset, progress.owner
FROM {schema}.progress JOIN {schema}.topic ON topic.id = progress.topic WHERE topic.name = $1
