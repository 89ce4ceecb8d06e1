-- ?1 conversation's id
delete from lease where conv = ?1
