-- What the session's settings are. Everybody may ask.
select
  current_setting('server_version_num')::int, current_setting('server_version'), pg_backend_pid(), clock_timestamp(),
  current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on', current_setting('synchronous_commit'),
  current_setting('synchronous_standby_names'), current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only') = 'on',
  pg_is_in_recovery(), current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on', current_setting('max_connections')::int,
  pg_has_role(current_user, 'pg_read_all_stats', 'usage')
