-- Renews leases. It answers each with its conversation's tag and the lease's new end.
--
-- KEYS  for each lease: its conversation, and that conversation's leases
-- ARGV  1 the time, '' for the server's  2 milliseconds from then  3… the field of each lease

local ends = whole(clock(ARGV[1]) + ARGV[2])
local answers = {}
for i = 3, #ARGV do
  local k = 2 * i - 5
  local state, lease = call('HGET', KEYS[k], 't'), false
  if call('HEXISTS', KEYS[k + 1], ARGV[i]) == 1 then
    call('HSET', KEYS[k + 1], ARGV[i], ends)
    lease = ends
  end
  answers[#answers + 1] = state and tag(state) or false
  answers[#answers + 1] = lease
end
return answers
