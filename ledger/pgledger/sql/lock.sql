-- $1 conversation. Waits for whoever writes it, and keeps others from writing until the transaction ends. Answers with the ledger's
-- identity, and whether the conversation exists: what does not cannot be locked.
with locked as materialized (
  select 1 from {schema}.conversation where name = $1::bytea for no key update
)
select (select id from {schema}.identity limit 1), exists (select 1 from locked)
