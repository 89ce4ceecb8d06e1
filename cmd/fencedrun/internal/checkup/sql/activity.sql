-- $1 seconds. Transactions of this database that have been open for longer, prepared ones too; oldest first.
select what, seconds from (
  select 'process ' || pid || coalesce(' of ' || usename, '') || coalesce(' (' || nullif(application_name, '') || ')', '') || ', ' || coalesce(state, 'unknown') as what,
    extract(epoch from clock_timestamp() - xact_start)::float8 as seconds
  from pg_stat_activity
  where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
  union all
  select 'prepared transaction ' || quote_literal(gid) || ' of ' || owner, extract(epoch from clock_timestamp() - prepared)::float8
  from pg_prepared_xacts where database = current_database()
) t
where seconds > $1
order by seconds desc
limit 5
