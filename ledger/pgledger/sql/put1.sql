-- The hot path: one row of a conversation that exists. Answers whether it was written, the time, and, if it was not, whether
-- that lay at the row and not at the tag.
-- $1 conversation, $2 tag, $3 new tag, $4 head, $5 due of the head,
-- $6 row key, $7 open, $8 at, $9 landed, $10 due, $11 body, $12 the key must be absent, $13 do not wait for the flush,
-- $14 the time if not the ledger's clock
with head as (
  update {schema}.conversation c set tag = $3::bytea, head = $4::bytea, due = $5::bigint
  where c.name = $1::bytea and c.tag = $2::bytea
    and not ($12::bool and exists (select 1 from {schema}.record r where r.conv = c.id and r.key = $6::bytea))
  returning c.id
), put as (
  insert into {schema}.record (conv, key, open, at, landed, due, body)
  select head.id, $6::bytea, $7::smallint, $8::bigint, $9::bigint, $10::bigint, $11::bytea from head
  on conflict (conv, key) do update
  set open = excluded.open, at = excluded.at, landed = excluded.landed, due = excluded.due, body = excluded.body
)
select head.id is not null, coalesce($14::bigint, {clock}),
  head.id is null and exists (select 1 from {schema}.conversation c where c.name = $1::bytea and c.tag = $2::bytea),
  case when $13::bool then set_config('synchronous_commit', 'off', true) end
from (select 1) one left join head on true
