-- ?1 conversation's id, ?2 tag, ?3 head
update conversation set tag = ?2, head = ?3 where id = ?1
