-- $1 the schema. What the statistics say of the ledger's tables. It touches none of them: they may be locked.
select c.relname,
  coalesce((select lower(o.option_value) in ('off', 'false', 'no', '0') from pg_options_to_table(c.reloptions) o where o.option_name = 'autovacuum_enabled'), false),
  coalesce(s.n_live_tup, 0), coalesce(s.n_dead_tup, 0), c.reltuples < 0 or s.last_analyze is null and s.last_autoanalyze is null
from pg_class c join pg_namespace n on n.oid = c.relnamespace left join pg_stat_all_tables s on s.relid = c.oid
where n.nspname = $1 and c.relkind = 'r' and c.relname in ('conversation', 'record', 'lease', 'home')
order by 1
