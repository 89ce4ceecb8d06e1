-- {schema} is the quoted name of the schema, {literal} the same as a literal, {steps} the migrations, {last} the version of the last one.
-- Safe to run again, and by many at once.
select pg_advisory_xact_lock(hashtextextended('fencedrun migrate ' || {literal}, 0));
do $migrate$ begin
  if to_regnamespace({literal}) is null then
    create schema {schema};
  end if;
  if to_regclass({literal} || '.migration') is null then
    create table {schema}.migration (version integer primary key, applied timestamptz not null default now());
  end if;
  if exists (select from {schema}.migration where version > {last}) then
    raise exception 'the tables in schema % are of version %, and this library knows {last}: a newer version has migrated them',
      {literal}, (select max(version) from {schema}.migration) using errcode = 'FR001';
  end if;
end $migrate$;
{steps}
