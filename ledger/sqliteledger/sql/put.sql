-- ?1 conversation's id, ?2 row key, ?3 open, ?4 at, ?5 landed, ?6 due, ?7 body
insert into record (conv, key, open, at, landed, due, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (conv, key) do update
set open = excluded.open, at = excluded.at, landed = excluded.landed, due = excluded.due, body = excluded.body
