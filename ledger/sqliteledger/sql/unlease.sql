-- ?1 conversation's id, ?2 run, ?3 nonce
delete from lease where conv = ?1 and run = ?2 and nonce = ?3
