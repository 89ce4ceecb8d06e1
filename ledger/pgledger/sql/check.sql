-- {name} is the schema's name as a literal. Answers about the session, without touching a table.
select
  pg_backend_pid(),
  current_setting('transaction_read_only') = 'on',
  pg_is_in_recovery(),
  current_database(),
  current_user::text,
  to_regclass({literal} || '.migration') is not null
