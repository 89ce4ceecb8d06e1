-- Applies one change of one conversation, or refuses it: the compare-and-swap on which all rests.
-- It answers an applied change with the time, and a refused one with the conversation as it is.
--
-- KEYS  1 the conversation  2 its index  3 its leases  4 its bucket's index, and where all keys are on
--       one server:  the directory entry of a run that moves in, and the index of that entry's bucket;
--       the entries of runs to forget;  the entry of a run that the refusal is to tell about
-- ARGV  1 a space for a change, 'd' to drop the conversation, 'e' a change with directory entries; as bytes, 3 for
--         each: the number of rows that a refusal is to show, of other fields that must be absent, of
--         fields to delete, of rows to write, of those among them that must be absent, which come
--         first, and of leases to write; then the time, nothing for the server's
--       2 the tag decided on, '' for none  3 the conversation, as it stands in indexes
--       4… the question for a refusal, see snapshot; then the other fields that must be absent, those to
--         delete; then t, state, h, head, and field, value of each row; then field, milliseconds of
--         each lease, 0 to delete it
--       for 'e' then: the conversation; the new entry of the run that moves in, '' for none; what the
--         old one must be; that run; number of runs to forget; '1' if the last key is of a run to tell
--         about
--
-- An argument costs about as much as a quarter of a call to the server, so there are few.

local kind, w3, w2, w1, a3, a2, a1, d3, d2, d1, p3, p2, p1, n3, n2, n1, l3, l2, l1 = byte(ARGV[1], 1, 19)
local drops, directory = kind == 100, kind == 101
local absent, delete, put = a3 * 65536 + a2 * 256 + a1, d3 * 65536 + d2 * 256 + d1, p3 * 65536 + p2 * 256 + p1
local fresh = n3 * 65536 + n2 * 256 + n1
local now = clock(sub(ARGV[1], 20))
local name = ARGV[3]
local names = 5 + w3 * 65536 + w2 * 256 + w1 -- the first field that is looked at
local write = names + absent + delete -- where t stands
local lease = write + 4 + 2 * put
local rest = lease + 2 * (l3 * 65536 + l2 * 256 + l1) -- what comes for 'e'
local state = ARGV[write + 1]
local lib = (kind ~= 32 or absent + delete + put >= PIECE - 1) and library()

-- 1 is the state, then come the values of the fields that must be absent, of those to delete, of those to
-- write.
local old
if put == 1 and write == names then
  old = call('HMGET', KEYS[1], 't', ARGV[write + 4])
else
  local fields = { 't' }
  for i = names, write - 1 do
    fields[#fields + 1] = ARGV[i]
  end
  for i = write + 4, lease - 1, 2 do
    fields[#fields + 1] = ARGV[i]
  end
  if #fields < PIECE then
    old = call('HMGET', KEYS[1], unpack(fields))
  else
    old = lib.hmget(KEYS[1], fields, 1, #fields)
  end
end
local is = old[1]
if own(is, state, 9) then
  -- The client asks again because the answer was lost. What is written is for WAIT, which waits
  -- for what its own connection wrote.
  call('HSET', KEYS[1], 't', is)
  return now
end

local allowed = (is and tag(is) or '') == ARGV[2]
for i = 2, absent + 1 do
  allowed = allowed and not old[i]
end
for i = absent + delete + 2, absent + delete + fresh + 1 do
  allowed = allowed and not old[i]
end
local entry
if drops then
  allowed = allowed and is
elseif directory and ARGV[rest + 1] ~= '' then
  entry = call('GET', KEYS[5])
  allowed = allowed and lib.lives(entry) == ARGV[rest + 2]
end
if not allowed then
  lib = lib or library()
  return lib.snapshot(now, 4, names - 5, ARGV[rest + 5] == '1' and KEYS[#KEYS] or nil)
end

-- What leaves and enters the conversation's index and its bucket's. What enters comes as score,
-- member.
local cut, add, cutBucket, addBucket = {}, {}, {}, {}

-- reindex moves a row from where its value a puts it to where its value b does; either may be false.
local function reindex(key, a, b)
  local x, y = a and sub(a, 1, 17) or '\0', b and sub(b, 1, 17) or '\0'
  if x ~= y then
    local was, is = byte(x), byte(y)
    if was ~= 0 then cutBucket[#cutBucket + 1] = 'o' .. sub(x, 1, 9) .. name .. key end
    if is ~= 0 then
      addBucket[#addBucket + 1] = '0'
      addBucket[#addBucket + 1] = 'o' .. sub(y, 1, 9) .. name .. key
    end
    if was == 2 then cut[#cut + 1] = 'o' .. sub(x, 10) .. key end
    if is == 2 then
      add[#add + 1] = '0'
      add[#add + 1] = 'o' .. sub(y, 10) .. key
    end
  end
  x, y = a and sub(a, 18, 25) or ZERO, b and sub(b, 18, 25) or ZERO
  if x ~= y then
    if x ~= ZERO then cut[#cut + 1] = 'l' .. x .. key end
    if y ~= ZERO then
      add[#add + 1] = '0'
      add[#add + 1] = 'l' .. y .. key
    end
  end
  x, y = a and sub(a, 26, 33) or ZERO, b and sub(b, 26, 33) or ZERO
  if x ~= y then
    if x ~= ZERO then cutBucket[#cutBucket + 1] = 'd' .. x .. name .. key end
    if y ~= ZERO then
      addBucket[#addBucket + 1] = '0'
      addBucket[#addBucket + 1] = 'd' .. y .. name .. key
    end
  end
end

-- many calls a command with the arguments args[from..to], in pieces of an even number of them.
local function many(command, key, args, from, to)
  for i = from, to, PIECE do
    call(command, key, unpack(args, i, math.min(i + PIECE - 1, to)))
  end
end

local wasDue, isDue = is and sub(is, 1, 8) or ZERO, sub(state, 1, 8)
if drops then
  isDue = ZERO
end
if wasDue ~= isDue then
  if wasDue ~= ZERO then cutBucket[1] = 'd' .. wasDue .. name end
  if isDue ~= ZERO then addBucket[1], addBucket[2] = '0', 'd' .. isDue .. name end
end

if drops then
  local from = '[k'
  repeat
    local keys = call('ZRANGEBYLEX', KEYS[2], from, '(l', 'LIMIT', 0, PIECE)
    local found = lib.rows(KEYS[1], keys, 2)
    for i = 1, #found, 2 do
      reindex(found[i], found[i + 1], false)
    end
    from = '(' .. (keys[#keys] or '')
  until #keys < PIECE
  many('ZREM', KEYS[4], cutBucket, 1, #cutBucket)
  call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
  return now
end

for i = absent + 2, absent + delete + 1 do
  if old[i] then
    local key = sub(ARGV[names + i - 2], 2)
    cut[#cut + 1] = 'k' .. key
    reindex(key, old[i], false)
  end
end
for i = 1, put do
  local value, key = old[absent + delete + i + 1], sub(ARGV[write + 2 + 2 * i], 2)
  if not value then
    add[#add + 1] = '0'
    add[#add + 1] = 'k' .. key
  end
  reindex(key, value, ARGV[write + 3 + 2 * i])
end

-- The first write is one that a server without memory refuses, so that it refuses all.
many('HSET', KEYS[1], ARGV, write, lease - 1)
many('HDEL', KEYS[1], ARGV, names + absent, write - 1)
many('ZREM', KEYS[2], cut, 1, #cut)
many('ZADD', KEYS[2], add, 1, #add)
many('ZREM', KEYS[4], cutBucket, 1, #cutBucket)
many('ZADD', KEYS[4], addBucket, 1, #addBucket)
for i = lease, rest - 1, 2 do
  if ARGV[i + 1] == '0' then
    call('HDEL', KEYS[3], ARGV[i])
  else
    call('HSET', KEYS[3], ARGV[i], whole(now + ARGV[i + 1]))
  end
end

if directory then
  local forget = 5
  if ARGV[rest + 1] ~= '' then
    call('SET', KEYS[5], ARGV[rest + 1])
    if entry and sub(entry, 1, 1) == 't' then
      call('ZREM', KEYS[6], lib.buried(entry, ARGV[rest + 3]))
    end
    forget = 7
  end
  for i = forget, forget + ARGV[rest + 4] - 1 do
    if lib.lives(call('GET', KEYS[i])) == 'c' .. ARGV[rest] then
      call('DEL', KEYS[i])
    end
  end
end
return now
