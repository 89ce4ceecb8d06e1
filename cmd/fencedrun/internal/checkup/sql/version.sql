-- {schema} is the quoted name of the schema.
select coalesce(max(version), 0) from {schema}.migration
