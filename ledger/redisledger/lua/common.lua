-- What all scripts share; this file is put in front of each of them.
--
-- Values are opaque bytes. The only bytes that a script looks at are those that this package puts
-- in front of a body, which keys.go writes:
--
--   index  33 bytes: kind of open (1), at (8), at inverted (8), landed (8), due (8)
--   state  the head's due (8), length of a nonce (1), that nonce, the tag
--   row    index, body
--   entry  'c' or 'm', length of a nonce (1), that nonce, the conversation; or
--          't', length of a nonce (1), that nonce, due (8), the tombstone
--          'm' was written where it cannot be atomic with the conversation, and nobody has read it
--
-- The numbers in them sort as bytes.

local call, sub, byte = redis.call, string.sub, string.byte

-- Lua's stack holds 8,000 values, so what may be long goes through the server in pieces.
local PIECE = 1000
local ZERO = '\128\0\0\0\0\0\0\0'

-- clock returns the time in milliseconds: the server's, or the one given.
local function clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function tag(state)
  return sub(state, 10 + byte(state, 9))
end

-- own reports whether two values carry the same nonce, whose length is their byte number at:
-- then the one was written by the call that brings the other.
local function own(is, mine, at)
  local last = at + byte(mine, at)
  return is and sub(is, at, last) == sub(mine, at, last)
end

-- whole writes a number of milliseconds, which Lua would write as 1.8e+12.
local function whole(n)
  return string.format('%.0f', n)
end

-- library returns what is not needed by every call. Making a function takes a fraction of a call
-- to the server; a claim makes few calls, and needs few of these.
local function library()
  local lib = {}

  -- sorting writes a number, which must not be negative, as it is written in an index.
  function lib.sorting(n)
    local s = ''
    for i = 1, 8 do
      local b = n % 256
      if i == 8 then
        b = b + 128
      end
      s = string.char(b) .. s
      n = math.floor(n / 256)
    end
    return s
  end

  -- hmget returns the values of the fields names[from..to].
  function lib.hmget(key, names, from, to)
    local all = {}
    for i = from, to, PIECE do
      local last = math.min(i + PIECE - 1, to)
      local some = call('HMGET', key, unpack(names, i, last))
      for j = 1, last - i + 1 do
        all[#all + 1] = some[j]
      end
    end
    return all
  end

  -- rows returns key, value, key, value … of the rows that members of an index name; their keys
  -- begin at a member's byte number at.
  function lib.rows(key, members, at)
    local names, found = {}, {}
    for i = 1, #members do
      names[i] = 'r' .. sub(members[i], at)
    end
    local values = lib.hmget(key, names, 1, #names)
    for i = 1, #names do
      if values[i] then
        found[#found + 1] = sub(names[i], 2)
        found[#found + 1] = values[i]
      end
    end
    return found
  end

  -- lives says what a directory entry is: '' none, 't' a tombstone, 'c' and the conversation.
  function lib.lives(entry)
    if not entry then
      return ''
    end
    if sub(entry, 1, 1) == 't' then
      return 't'
    end
    return 'c' .. sub(entry, 3 + byte(entry, 2))
  end

  -- look reads a directory entry for somebody who may rest a decision on it. From then on it is
  -- not taken back.
  function lib.look(key)
    local entry = call('GET', key)
    if entry and sub(entry, 1, 1) == 'm' then
      entry = 'c' .. sub(entry, 2)
      call('SET', key, entry)
    end
    return entry
  end

  -- buried returns the member of the bucket's index that stands for the tombstone of run, which
  -- entry is.
  function lib.buried(entry, run)
    local due = 3 + byte(entry, 2)
    return 't' .. sub(entry, due, due + 7) .. run
  end

  -- snapshot answers a question about a conversation. ARGV[at] is '' or '1' for its open messages with
  -- how many of them as four digits or '00000', and from where on in its index to give the tail or
  -- nothing; n rows' fields follow. entry is the key of a directory entry, or nil.
  function lib.snapshot(now, at, n, entry)
    local open, tail = sub(ARGV[at], 1, 5), sub(ARGV[at], 6)
    local head = call('HMGET', KEYS[1], 't', 'h')
    local landed, messages, count = {}, {}, 0
    if tail ~= '' then
      landed = lib.rows(KEYS[1], call('ZRANGEBYLEX', KEYS[2], tail, '(m'), 10)
    end
    if sub(open, 1, 1) == '1' then
      messages = lib.rows(KEYS[1], call('ZRANGEBYLEX', KEYS[2], '[o', '(p', 'LIMIT', 0, tonumber(sub(open, 2))), 10)
      count = call('ZLEXCOUNT', KEYS[2], '[o', '(p')
    end
    return {
      now, head[1], head[2], lib.hmget(KEYS[1], ARGV, at + 1, at + n), call('HGETALL', KEYS[3]),
      landed, messages, count, entry and lib.look(entry) or false,
    }
  end

  return lib
end
