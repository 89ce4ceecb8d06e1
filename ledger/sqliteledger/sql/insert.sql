-- ?1 conversation, ?2 tag, ?3 head, ?4 due. Gives its id.
insert into conversation (name, tag, head, due) values (?1, ?2, ?3, ?4) returning id
