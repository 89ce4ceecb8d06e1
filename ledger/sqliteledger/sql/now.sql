-- ?1 the time if not the ledger's clock
select coalesce(?1, (select now from clock))
