-- ?1 run, ?2 conversation
insert into home (run, conversation, tombstone, due) values (?1, ?2, null, 0)
on conflict (run) do update set conversation = excluded.conversation, tombstone = null, due = 0
