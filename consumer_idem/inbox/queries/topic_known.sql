SELECT EXISTS (SELECT FROM {schema}.progress JOIN {schema}.topic ON topic.id = progress.topic
               WHERE progress.consumer_group = $1 AND topic.name = $2) AS known
