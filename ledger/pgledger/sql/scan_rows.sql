-- $1 conversation, $2 keys from, $3 keys below or null, $4 behind this key or null, $5 how many
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from {schema}.conversation c, lateral (
  select r.* from {schema}.record r
  where r.conv = c.id and r.key >= $2::bytea and ($3::bytea is null or r.key < $3::bytea) and ($4::bytea is null or r.key > $4::bytea)
  order by r.key
  limit $5::int) r
where c.name = $1::bytea
order by r.key
