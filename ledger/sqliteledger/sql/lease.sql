-- ?1 conversation's id, ?2 run, ?3 nonce, ?4 until
insert into lease (conv, run, nonce, until) values (?1, ?2, ?3, ?4)
on conflict (conv, run, nonce) do update set until = excluded.until
