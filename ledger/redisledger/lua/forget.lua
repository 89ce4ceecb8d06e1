-- Deletes a directory entry if it names the conversation.
--
-- KEYS  1 the entry
-- ARGV  1 the conversation

local lib = library()
if lib.lives(call('GET', KEYS[1])) == 'c' .. ARGV[1] then
  call('DEL', KEYS[1])
end
return 1
