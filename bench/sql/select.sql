-- $1 id
select state, result from floor where id = $1
