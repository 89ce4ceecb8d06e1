-- A conversation as of one snapshot.
-- $1 conversation, $2 row keys, $3 run or null, $4 the time if not the ledger's clock.
-- kind 0 the conversation (key: tag), 1 a row, 2 a lease (key: run, body: nonce, at: until), 3 the directory entry (key:
-- conversation, body: tombstone).
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
