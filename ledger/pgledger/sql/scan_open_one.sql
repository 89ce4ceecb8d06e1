-- $1 at most this at, $2 conversation, $3 how many, $4 $5 $6 at, name and key of the row to go on behind, or what is below them all.
-- {open} is 1 or 2.
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from {schema}.conversation c, lateral (
  select r.* from {schema}.record r
  where r.conv = c.id and r.open = {open} and r.at <= $1::bigint and (r.at, c.name, r.key) > ($4::bigint, $5::bytea, $6::bytea)
  order by r.at, r.key
  limit $3::int) r
where c.name = $2::bytea
order by r.at, r.key
