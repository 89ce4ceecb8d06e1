-- Writes a conversation's state once more, so that there is something for WAIT to wait for.
--
-- KEYS  1 the conversation

local state = call('HGET', KEYS[1], 't')
if state then
  call('HSET', KEYS[1], 't', state)
end
return 1
