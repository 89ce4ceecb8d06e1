-- $1 the time if not the ledger's clock, $2 how many, $3 do not wait for the flush. Answers how many it were.
with due as (
  select ctid from {schema}.home
  where conversation is null and due <= (select coalesce($1::bigint, {clock}))
  order by due limit $2::int
  for update skip locked
), exhumed as (
  delete from {schema}.home where ctid = any (array(select ctid from due)) and conversation is null returning 1
)
select count(*), case when $3::bool then set_config('synchronous_commit', 'off', true) end from exhumed
