-- Reads a directory entry. It is a script because a plain GET may be sent to a replica, which lags.
--
-- KEYS  1 the entry

return library().look(KEYS[1])
