-- The same, without waiting for its flush. $1 id, $2 result
with done as (
  update floor set state = 'committed', result = $2 where id = $1
)
select set_config('synchronous_commit', 'off', true)
