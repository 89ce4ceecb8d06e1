-- $1 at most this at, $2 names from, $3 names below or null, $4 how many, $5 $6 $7 at, name and key of the row to go on behind, or
-- what is below them all. {open} is 1 or 2.
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from {schema}.record r join {schema}.conversation c on c.id = r.conv
where r.open = {open} and r.at <= $1::bigint and r.at >= $5::bigint
  and c.name >= $2::bytea and ($3::bytea is null or c.name < $3::bytea)
  and (r.at, c.name, r.key) > ($5::bigint, $6::bytea, $7::bytea)
order by r.at, c.name, r.key
limit $4::int
