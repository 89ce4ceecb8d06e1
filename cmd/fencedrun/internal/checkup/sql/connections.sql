-- How many connections of clients there are, of all databases.
select count(*) from pg_stat_activity where backend_type = 'client backend' or backend_type is null
