-- $1 conversation, $2 tag, $3 do not wait for the flush, $4 the time if not the ledger's clock
with head as (
  delete from {schema}.conversation c where c.name = $1::bytea and c.tag = $2::bytea returning c.id
), rows as (
  delete from {schema}.record where ctid = any (array(
    select r.ctid from head, lateral (select r.ctid from {schema}.record r where r.conv = head.id offset 0) r))
), leases as (
  delete from {schema}.lease l using head where l.conv = head.id
)
select head.id is not null, coalesce($4::bigint, {clock}), false,
  case when $3::bool then set_config('synchronous_commit', 'off', true) end
from (select 1) one left join head on true
