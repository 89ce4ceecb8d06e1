-- $1 run
select conversation, tombstone from {schema}.home where run = $1::bytea
