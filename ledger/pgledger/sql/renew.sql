-- $1 conversations, $2 runs, $3 nonces, $4 milliseconds, $5 the time if not the ledger's clock, $6 do not wait for the flush.
-- One row for each lease asked for, in their order: the conversation's tag, and until when the lease runs.
-- A lease that somebody else's transaction holds is left as it is: it is being given up, and waiting
-- for it would keep all the others from being renewed.
with asked as materialized (
  select a.n, a.run, a.nonce, c.id, c.tag
  from unnest((select $1::bytea[])::bytea[], (select $2::bytea[])::bytea[], (select $3::bytea[])::bytea[]) with ordinality a (name, run, nonce, n)
    left join lateral (select c.id, c.tag from {schema}.conversation c where c.name = a.name offset 0) c on true
), clock as materialized (
  select coalesce($5::bigint, {clock}) + $4::bigint as until, case when $6::bool then set_config('synchronous_commit', 'off', true) end as flush
), free as materialized (
  select l.ctid as at from asked a join {schema}.lease l on l.conv = a.id and l.run = a.run and l.nonce = a.nonce
  for no key update of l skip locked
), renewed as (
  update {schema}.lease l set until = clock.until from clock
  where l.ctid = any (array(select at from free))
  returning l.conv, l.run, l.nonce, l.until
)
select a.tag, coalesce(r.until, l.until)
from asked a
  left join renewed r on r.conv = a.id and r.run = a.run and r.nonce = a.nonce
  left join {schema}.lease l on l.conv = a.id and l.run = a.run and l.nonce = a.nonce
order by a.n
