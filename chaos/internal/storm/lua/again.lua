-- Leaves behind what a failover does that loses a task's dequeue: the task is pending once more,
-- and the worker that has it does not know.
-- KEYS: active, lease, pending, task. ARGV: the task's id.
if redis.call("LREM", KEYS[1], 0, ARGV[1]) == 0 then
	return 0
end
redis.call("ZREM", KEYS[2], ARGV[1])
if redis.call("EXISTS", KEYS[4]) == 0 then
	return 0
end
redis.call("RPUSH", KEYS[3], ARGV[1])
redis.call("HSET", KEYS[4], "state", "pending")
return 1
