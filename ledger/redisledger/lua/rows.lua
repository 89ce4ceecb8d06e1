-- Reads rows of one conversation.
--
-- KEYS  1 the conversation
-- ARGV  the fields

return library().hmget(KEYS[1], ARGV, 1, #ARGV)
