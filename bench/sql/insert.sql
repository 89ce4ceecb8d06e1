-- $1 id
insert into floor (id, state) values ($1, 'pending')
