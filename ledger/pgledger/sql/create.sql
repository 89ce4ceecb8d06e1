-- A conversation that does not exist: it has no rows and no leases, so nothing must be looked for but the run's directory entry.
-- $1 conversation, $2 tag, $3 head, $4 due of the head, rows: $5 keys, $6 open, $7 at, $8 landed, $9 due, $10 bodies,
-- $11 do not wait for the flush, $12 the time if not the ledger's clock, leases: $13 runs, $14 nonces, $15 milliseconds,
-- $16 the run whose directory entry is to name the conversation or null, $17 it has an entry, $18 the conversation that the entry
-- names or null for a tombstone, $19 runs whose entry goes if it names the conversation
with moving as materialized (
  select 1 from {schema}.home h
  where $17::bool and h.run = $16::bytea and h.conversation is not distinct from $18::bytea
  for update
), head as (
  insert into {schema}.conversation (name, tag, head, due)
  select $1::bytea, $2::bytea, $3::bytea, $4::bigint
  where not exists (select 1 from {schema}.conversation c where c.name = $1::bytea) -- or each refusal would use up an id
    and case
      when $16::bytea is null then true
      when $17::bool then exists (select 1 from moving)
      else not exists (select 1 from {schema}.home h where h.run = $16::bytea)
    end
  on conflict (name) do nothing
  returning id
), done as materialized (
  select head.id, coalesce($12::bigint, {clock}) as now from (select 1) one left join head on true
), put as (
  insert into {schema}.record (conv, key, open, at, landed, due, body)
  select head.id, a.* from head, unnest((select $5::bytea[])::bytea[], (select $6::smallint[])::smallint[], (select $7::bigint[])::bigint[],
    (select $8::bigint[])::bigint[], (select $9::bigint[])::bigint[], (select $10::bytea[])::bytea[]) a
), taken as (
  insert into {schema}.lease (conv, run, nonce, until)
  select done.id, a.run, a.nonce, done.now + a.ms
  from done, unnest((select $13::bytea[])::bytea[], (select $14::bytea[])::bytea[], (select $15::bigint[])::bigint[]) a (run, nonce, ms)
  where done.id is not null and a.ms > 0
), moved as (
  update {schema}.home h set conversation = $1::bytea, tombstone = null, due = 0 from head where $17::bool and h.run = $16::bytea
), housed as (
  -- Somebody who was faster is a unique violation: the statement is undone and made again.
  insert into {schema}.home (run, conversation, tombstone, due)
  select $16::bytea, $1::bytea, null, 0 from head where $16::bytea is not null and not $17::bool
), forgotten as (
  delete from {schema}.home where ctid = any (array(
    select h.ctid from head, unnest((select $19::bytea[])::bytea[]) a (run),
      lateral (select h.ctid from {schema}.home h where h.run = a.run offset 0) h))
    and conversation = $1::bytea
)
select done.id is not null, done.now, false,
  case when $11::bool then set_config('synchronous_commit', 'off', true) end
from done
