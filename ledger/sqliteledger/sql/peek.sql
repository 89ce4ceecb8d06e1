-- ?1 conversation, ?2 the time if not the ledger's clock. One row, whether it exists or not.
select coalesce(?2, clock.now), c.id, c.tag, c.due
from clock left join conversation c on c.name = ?1
