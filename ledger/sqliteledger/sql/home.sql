-- ?1 run
select conversation, tombstone from home where run = ?1
