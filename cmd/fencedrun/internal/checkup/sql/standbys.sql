-- The servers that receive the log of this one; nulls where this role may not know. Logical ones are no standbys.
select coalesce(nullif(r.application_name, ''), host(r.client_addr), '?'), r.state, r.sync_state
from pg_stat_replication r
where not exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')
order by 1
