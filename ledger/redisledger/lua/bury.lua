-- Writes a tombstone where there is no entry, and answers 1 then.
--
-- KEYS  1 the entry  2 its bucket's index
-- ARGV  1 the tombstone's entry  2 the run

local lib = library()
local is = call('GET', KEYS[1])
if is and not own(is, ARGV[1], 2) then
  return 0
end
call('SET', KEYS[1], ARGV[1])
call('ZADD', KEYS[2], 0, lib.buried(ARGV[1], ARGV[2]))
return 1
