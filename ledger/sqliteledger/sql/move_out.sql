-- ?1 run, ?2 the conversation that it must live in
delete from home where run = ?1 and conversation = ?2
