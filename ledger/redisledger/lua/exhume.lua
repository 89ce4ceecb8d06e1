-- Deletes tombstones of one bucket, and answers how many.
--
-- KEYS  1 the bucket's index  2… the entries
-- ARGV  the members of the index that stand for them

local lib = library()
local n = 0
for i = 1, #ARGV do
  local is = call('GET', KEYS[i + 1])
  if is and sub(is, 1, 1) == 't' and lib.buried(is, sub(ARGV[i], 10)) == ARGV[i] then
    call('DEL', KEYS[i + 1])
    n = n + 1
  end
  call('ZREM', KEYS[1], ARGV[i])
end
return n
