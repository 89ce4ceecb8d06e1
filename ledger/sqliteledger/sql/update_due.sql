-- ?1 conversation's id, ?2 due. Apart from update.sql, which so leaves the index alone.
update conversation set due = ?2 where id = ?1
