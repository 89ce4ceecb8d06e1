-- $1 run, $2 tombstone, $3 due
insert into {schema}.home (run, conversation, tombstone, due) values ($1::bytea, null, $2::bytea, $3::bigint) on conflict (run) do nothing
