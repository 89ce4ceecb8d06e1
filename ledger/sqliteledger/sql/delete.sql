-- ?1 conversation's id, ?2 row key
delete from record where conv = ?1 and key = ?2
