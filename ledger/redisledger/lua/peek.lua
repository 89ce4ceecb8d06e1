-- Reads the first members of buckets' indexes, in their order.
--
-- KEYS  the indexes
-- ARGV  1 the time, '' for the server's  2 from where  3 to where: the whole bound, or only its
--       beginning, to be continued by the time  4 '1' in the second case  5 how many of each

local to = ARGV[3]
if ARGV[4] == '1' then
  to = to .. library().sorting(clock(ARGV[1]) + 1)
end
local found = {}
for i = 1, #KEYS do
  found[i] = call('ZRANGEBYLEX', KEYS[i], ARGV[2], to, 'LIMIT', 0, ARGV[5])
end
return found
