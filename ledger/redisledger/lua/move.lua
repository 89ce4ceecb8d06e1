-- Makes a directory entry name a conversation, where conversations have other slots. It answers with
-- the time and with 1 if it did.
--
-- KEYS  1 the entry  2 its bucket's index
-- ARGV  1 the time, '' for the server's  2 the new entry  3 what the old one must be
--       4 the very bytes that it must be, '' for any  5 the run

local lib = library()
local is = call('GET', KEYS[1])
if own(is, ARGV[2], 2) then
  -- The client asks again because the answer was lost; somebody may have read it meanwhile, and
  -- that is not to be forgotten. What is written is for WAIT.
  call('SET', KEYS[1], is)
else
  if lib.lives(is) ~= ARGV[3] or ARGV[4] ~= '' and is ~= ARGV[4] then
    return { clock(ARGV[1]), 0 }
  end
  if is and sub(is, 1, 1) == 't' then
    call('ZREM', KEYS[2], lib.buried(is, ARGV[5]))
  end
  call('SET', KEYS[1], ARGV[2])
end
return { clock(ARGV[1]), 1 }
