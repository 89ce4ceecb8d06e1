-- As load.sql, with the tail and the open messages.
-- $1 conversation, $2 row keys, $3 run or null, $4 the time if not the ledger's clock, $5 the tail above this seq or null,
-- $6 how many open messages or null.
-- kind 4 the tail, 5 open messages, 6 their number (at); 4 and 5 in no order.
with c as materialized (select id, tag, due, head from {schema}.conversation where name = $1::bytea)
select 0 as kind, c.tag as key, 0::smallint as open, coalesce($4::bigint, {clock}) as at, 0::bigint as landed, coalesce(c.due, 0) as due, c.head as body
from (select 1) one left join c on true
union all
select 1, r.key, r.open, r.at, r.landed, r.due, r.body
from c, unnest((select $2::bytea[])::bytea[]) a (key),
  lateral (select r.* from {schema}.record r where r.conv = c.id and r.key = a.key offset 0) r
union all
select 2, l.run, 0::smallint, l.until, 0, 0, l.nonce
from c, lateral (select l.* from {schema}.lease l where l.conv = c.id offset 0) l
union all
select 3, h.conversation, 0::smallint, 0, 0, 0, h.tombstone
from {schema}.home h where h.run = $3::bytea
union all
select 4, r.key, r.open, r.at, r.landed, r.due, r.body
from c, lateral (
  select r.* from {schema}.record r where r.conv = c.id and r.landed > 0 and r.landed > $5::bigint order by r.landed limit 1000000000) r
union all
select 5, r.key, r.open, r.at, r.landed, r.due, r.body
from c, lateral (
  select r.* from {schema}.record r where r.conv = c.id and r.open = 2 and $6::int is not null order by r.at desc, r.key limit $6::int) r
union all
select 6, null, 0::smallint, n.count, 0, 0, null
from c, lateral (select count(*) from {schema}.record r where r.conv = c.id and r.open = 2 and $6::int is not null) n
