-- Loads one conversation as of one moment.
--
-- KEYS  1 the conversation  2 its index  3 its leases  4 a directory entry, if one is asked for
-- ARGV  1 the time, '' for the server's  2… the question, see snapshot

return library().snapshot(clock(ARGV[1]), 2, #ARGV - 2, KEYS[4])
