-- No arguments. What marks the file as a ledger.
select application_id from pragma_application_id
