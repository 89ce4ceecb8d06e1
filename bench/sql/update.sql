-- $1 id, $2 result
update floor set state = 'committed', result = $2 where id = $1
