SELECT pg_terminate_backend($1)
