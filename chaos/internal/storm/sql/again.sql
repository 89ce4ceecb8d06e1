-- What River's rescuer does to a job that it takes to be stuck, without the hour before. Most of
-- these are not stuck.
UPDATE {table} SET state = 'available', scheduled_at = {now} WHERE id = $1 AND state = 'running'
