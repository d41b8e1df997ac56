-- $1 and $2 names and ids of scopes, $3 and $4 of sources.
SELECT NOT EXISTS (
    SELECT FROM unnest($1::text[], $2::int[]) AS ours (name, id)
    WHERE NOT EXISTS (SELECT FROM {schema}.scope WHERE scope.name = ours.name AND scope.id = ours.id)
) AND NOT EXISTS (
    SELECT FROM unnest($3::text[], $4::int[]) AS ours (name, id)
    WHERE NOT EXISTS (SELECT FROM {schema}.source WHERE source.name = ours.name AND source.id = ours.id)
) AS registered
