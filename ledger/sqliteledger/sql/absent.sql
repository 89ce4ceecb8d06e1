-- ?1 conversation's id, ?2 row key
select 1 from record where conv = ?1 and key = ?2
