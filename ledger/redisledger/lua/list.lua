-- Lists the rows of one conversation by key: key, value, key, value …
--
-- KEYS  1 the conversation  2 its index
-- ARGV  1 from where  2 to where  3 how many

return library().rows(KEYS[1], call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3]), 2)
