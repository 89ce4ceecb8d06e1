-- ?1 conversation's id
delete from record where conv = ?1
