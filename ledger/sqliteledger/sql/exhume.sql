-- ?1 the time if not the ledger's clock, ?2 how many
delete from home where run in (
  select run from home where conversation is null and due <= coalesce(?1, (select now from clock)) order by due limit ?2 + 0
)
