-- $1 the time if not the ledger's clock, $2 names from, $3 names below or null, $4 how many, $5 $6 $7 due, name and key of the row to
-- go on behind, or what is below them all
(
  select c.name as name, r.key as key, r.open, r.at, r.landed, r.due as due, r.body
  from {schema}.record r join {schema}.conversation c on c.id = r.conv
  where r.due > 0 and r.due <= (select coalesce($1::bigint, {clock})) and r.due >= $5::bigint
    and c.name >= $2::bytea and ($3::bytea is null or c.name < $3::bytea)
    and (r.due, c.name, r.key) > ($5::bigint, $6::bytea, $7::bytea)
  order by r.due, c.name, r.key
  limit $4::int
)
union all
(
  select c.name, ''::bytea, 0::smallint, 0::bigint, 0::bigint, c.due, c.head
  from {schema}.conversation c
  where c.due > 0 and c.due <= (select coalesce($1::bigint, {clock})) and c.due >= $5::bigint
    and c.name >= $2::bytea and ($3::bytea is null or c.name < $3::bytea)
    and (c.due, c.name, ''::bytea) > ($5::bigint, $6::bytea, $7::bytea)
  order by c.due, c.name
  limit $4::int
)
order by due, name, key
limit $4::int
