-- ?1 conversation, ?2 row keys (a JSON array of hex), ?3 run or null, ?4 the tail above this seq or
-- null, ?5 how many open messages or null, ?6 the time if not the ledger's clock.
-- kind 0 the conversation (key: tag), 1 a row, 2 a lease (key: run, body: nonce, at: until), 3 the
-- directory entry (key: conversation, body: tombstone), 4 the tail, 5 open messages, 6 their
-- number (at); 4 and 5 in no order.
with c as materialized (select id, tag, due, head from conversation where name = ?1)
select 0 as kind, c.tag as key, 0 as open, coalesce(?6, clock.now) as at, 0 as landed, c.due as due, c.head as body
from clock left join c
union all
select 1, r.key, r.open, r.at, r.landed, r.due, r.body
from c cross join json_each(?2) k cross join record r on r.conv = c.id and r.key = unhex(k.value)
union all
select 2, l.run, 0, l.until, 0, 0, l.nonce
from c cross join lease l on l.conv = c.id
union all
select 3, h.conversation, 0, 0, 0, 0, h.tombstone
from home h where ?3 is not null and h.run = ?3
union all
select 4, r.key, r.open, r.at, r.landed, r.due, r.body
from c cross join record r on r.conv = c.id
where ?4 is not null and r.landed > ?4 + 0 and r.landed > 0
union all
select * from (
  select 5, r.key, r.open, r.at, r.landed, r.due, r.body
  from c cross join record r on r.conv = c.id
  where ?5 is not null and r.open = 2
  order by r.at desc, r.key
  limit coalesce(?5, 0)
)
union all
select 6, null, 0, count(*), 0, 0, null
from c cross join record r on r.conv = c.id
where ?5 is not null and r.open = 2
