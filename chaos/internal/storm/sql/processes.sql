-- Every process of the server but the postmaster, and the one that answers this last.
SELECT pid FROM pg_stat_activity ORDER BY pid = pg_backend_pid(), pid
