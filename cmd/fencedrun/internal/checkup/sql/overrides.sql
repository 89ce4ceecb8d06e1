-- Settings of roles and of this database that the sessions of the service may have and this one has not.
select coalesce(r.rolname, ''), s.setting
from pg_db_role_setting d cross join unnest(d.setconfig) s(setting) left join pg_roles r on r.oid = d.setrole
where d.setdatabase in (0, (select oid from pg_database where datname = current_database()))
  and (s.setting in ('synchronous_commit=off', 'synchronous_commit=local')
    or s.setting ~ '^default_transaction_isolation=(repeatable read|serializable)$'
    or s.setting ~ '^default_transaction_read_only=(on|true|yes|1)$')
order by 1, 2
