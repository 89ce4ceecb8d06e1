-- Takes back what move.lua wrote, unless somebody has read it or moved the run on since: a cancel may
-- have left its word where the entry said.
--
-- KEYS  1 the entry  2 its bucket's index
-- ARGV  1 the entry that was written  2 the one that was there before, '' for none  3 the run

local lib = library()
if call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  call('DEL', KEYS[1])
  return 1
end
call('SET', KEYS[1], ARGV[2])
if sub(ARGV[2], 1, 1) == 't' then
  call('ZADD', KEYS[2], 0, lib.buried(ARGV[2], ARGV[3]))
end
return 1
