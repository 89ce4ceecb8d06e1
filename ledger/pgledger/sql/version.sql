-- What the tables are, and whether this role may write them.
select
  coalesce((select max(version) from {schema}.migration), 0),
  coalesce((select id from {schema}.identity limit 1), ''),
  (select bool_and(has_table_privilege(c.oid, p)) from pg_class c, unnest(array['select', 'insert', 'update', 'delete']) p
   where c.relnamespace = to_regnamespace({literal}) and c.relname in ('conversation', 'record', 'lease', 'home') and c.relkind = 'r')
