-- $1 the schema. Who waits for a lock on the ledger's tables or rows, and who holds one that keeps all others out.
select
  count(*) filter (where not l.granted),
  count(*) filter (where l.granted and l.mode = 'AccessExclusiveLock'),
  coalesce(max(extract(epoch from clock_timestamp() - a.query_start)) filter (where not l.granted), 0)::float8
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
where l.pid is distinct from pg_backend_pid() and l.database = (select oid from pg_database where datname = current_database())
  and l.relation in (select c.oid from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relkind = 'r')
