INSERT INTO {schema}.account (id, balance) SELECT * FROM unnest($1::text[], $2::numeric[])
