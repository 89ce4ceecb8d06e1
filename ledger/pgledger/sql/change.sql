-- Everything that a change of a conversation that exists may be.
-- $1 to $14 as in puts.sql, $15 row keys to delete, leases: $16 runs, $17 nonces, $18 milliseconds (0: give it up),
-- $19 the run whose directory entry is to name the conversation or null, $20 it has an entry, $21 the conversation that the entry
-- names or null for a tombstone, $22 runs whose entry goes if it names the conversation
with moving as materialized (
  select 1 from {schema}.home h
  where $20::bool and h.run = $19::bytea and h.conversation is not distinct from $21::bytea
  for update
), head as (
  update {schema}.conversation c set tag = $3::bytea, head = $4::bytea, due = $5::bigint
  where c.name = $1::bytea and c.tag = $2::bytea
    and not exists (
      select 1 from unnest((select $12::bytea[])::bytea[]) a (key),
        lateral (select 1 from {schema}.record r where r.conv = c.id and r.key = a.key offset 0) r)
    and case
      when $19::bytea is null then true
      when $20::bool then exists (select 1 from moving)
      else not exists (select 1 from {schema}.home h where h.run = $19::bytea)
    end
  returning c.id
), done as materialized (
  select head.id, coalesce($14::bigint, {clock}) as now from (select 1) one left join head on true
), put as (
  insert into {schema}.record (conv, key, open, at, landed, due, body)
  select head.id, a.* from head, unnest((select $6::bytea[])::bytea[], (select $7::smallint[])::smallint[], (select $8::bigint[])::bigint[],
    (select $9::bigint[])::bigint[], (select $10::bigint[])::bigint[], (select $11::bytea[])::bytea[]) a
  on conflict (conv, key) do update
  set open = excluded.open, at = excluded.at, landed = excluded.landed, due = excluded.due, body = excluded.body
), deleted as (
  delete from {schema}.record where ctid = any (array(
    select r.ctid from head, unnest((select $15::bytea[])::bytea[]) a (key),
      lateral (select r.ctid from {schema}.record r where r.conv = head.id and r.key = a.key offset 0) r))
), asked as materialized (
  select done.id, a.run, a.nonce, a.ms, done.now + a.ms as until
  from done, unnest((select $16::bytea[])::bytea[], (select $17::bytea[])::bytea[], (select $18::bigint[])::bigint[]) a (run, nonce, ms)
  where done.id is not null
), kept as (
  update {schema}.lease l set until = a.until from asked a
  where l.conv = a.id and l.run = a.run and l.nonce = a.nonce and a.ms > 0
), taken as (
  insert into {schema}.lease (conv, run, nonce, until)
  select a.id, a.run, a.nonce, a.until from asked a
  where a.ms > 0 and not exists (select 1 from {schema}.lease l where l.conv = a.id and l.run = a.run and l.nonce = a.nonce)
), given as (
  delete from {schema}.lease l using asked a where l.conv = a.id and l.run = a.run and l.nonce = a.nonce and a.ms = 0
), moved as (
  update {schema}.home h set conversation = $1::bytea, tombstone = null, due = 0 from head where $20::bool and h.run = $19::bytea
), housed as (
  -- Somebody who was faster is a unique violation: the statement is undone and made again.
  insert into {schema}.home (run, conversation, tombstone, due)
  select $19::bytea, $1::bytea, null, 0 from head where $19::bytea is not null and not $20::bool
), forgotten as (
  delete from {schema}.home where ctid = any (array(
    select h.ctid from head, unnest((select $22::bytea[])::bytea[]) a (run),
      lateral (select h.ctid from {schema}.home h where h.run = a.run offset 0) h))
    and conversation = $1::bytea
)
select done.id is not null, done.now,
  done.id is null and exists (select 1 from {schema}.conversation c where c.name = $1::bytea and c.tag = $2::bytea),
  case when $13::bool then set_config('synchronous_commit', 'off', true) end
from done
