-- $1 the time if not the ledger's clock, $2 conversation, $3 how many, $4 $5 $6 due, name and key of the row to go on behind, or what
-- is below them all
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from {schema}.conversation c, lateral (
  select r.key, r.open, r.at, r.landed, r.due, r.body from {schema}.record r where r.conv = c.id
  union all
  select ''::bytea, 0::smallint, 0::bigint, 0::bigint, c.due, c.head) r
where c.name = $2::bytea and r.due > 0 and r.due <= (select coalesce($1::bigint, {clock}))
  and (r.due, c.name, r.key) > ($4::bigint, $5::bytea, $6::bytea)
order by r.due, r.key
limit $3::int
