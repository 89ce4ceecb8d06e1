-- ?1 conversation's id
delete from conversation where id = ?1
