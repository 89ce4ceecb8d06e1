-- As put1.sql for any number of rows.
-- $1 conversation, $2 tag, $3 new tag, $4 head, $5 due of the head,
-- rows: $6 keys, $7 open, $8 at, $9 landed, $10 due, $11 bodies, $12 keys that must be absent, $13 do not wait for the flush,
-- $14 the time if not the ledger's clock
--
-- The arrays are hidden in sub-selects: a bare one makes a custom plan look cheaper than the generic one, and Postgres would plan
-- anew at every execution. Keys are looked up one by one ("offset 0"): "key = any" would be a filter over the whole conversation.
with head as (
  update {schema}.conversation c set tag = $3::bytea, head = $4::bytea, due = $5::bigint
  where c.name = $1::bytea and c.tag = $2::bytea
    and not exists (
      select 1 from unnest((select $12::bytea[])::bytea[]) a (key),
        lateral (select 1 from {schema}.record r where r.conv = c.id and r.key = a.key offset 0) r)
  returning c.id
), put as (
  insert into {schema}.record (conv, key, open, at, landed, due, body)
  select head.id, a.* from head, unnest((select $6::bytea[])::bytea[], (select $7::smallint[])::smallint[], (select $8::bigint[])::bigint[],
    (select $9::bigint[])::bigint[], (select $10::bigint[])::bigint[], (select $11::bytea[])::bytea[]) a
  on conflict (conv, key) do update
  set open = excluded.open, at = excluded.at, landed = excluded.landed, due = excluded.due, body = excluded.body
)
select head.id is not null, coalesce($14::bigint, {clock}),
  head.id is null and exists (select 1 from {schema}.conversation c where c.name = $1::bytea and c.tag = $2::bytea),
  case when $13::bool then set_config('synchronous_commit', 'off', true) end
from (select 1) one left join head on true
