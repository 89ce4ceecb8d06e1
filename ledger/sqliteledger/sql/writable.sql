-- No arguments. Changes nothing, and fails if nothing may be changed.
delete from home where false
