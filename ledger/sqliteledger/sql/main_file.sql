-- No arguments. The name of the file that the connection is on.
select file from pragma_database_list where name = 'main'
