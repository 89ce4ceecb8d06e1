-- ?1 run, ?2 tombstone, ?3 due
insert into home (run, conversation, tombstone, due) values (?1, null, ?2, ?3) on conflict (run) do nothing
