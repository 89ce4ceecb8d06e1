-- {schema} is the quoted name of the schema. Runs inside the transaction of the migration.

-- Which ledger this is, so that a transaction of another database is noticed.
create table {schema}.identity (
  id text not null
);
insert into {schema}.identity (id) values (gen_random_uuid()::text);

-- One conversation: the tag that compare-and-swap compares, and the head. Half of each page is
-- left free: then a change rewrites its row on the same page and no index.
create table {schema}.conversation (
  id   bigint generated always as identity primary key,
  name bytea not null unique,
  tag  bytea not null,
  head bytea not null,
  due  bigint not null -- from when on it may be purged, milliseconds since 1970; 0 never
) with (fillfactor = 50);
create index conversation_due on {schema}.conversation (due) where due > 0;

-- Its rows: a key, the columns that an index needs, and bytes that nothing here looks into.
create table {schema}.record (
  conv   bigint not null,
  key    bytea not null,
  open   smallint not null, -- what the row waits for: 0 nothing, 1 an unresolved effect, 2 an open message
  at     bigint not null, -- since when it waits
  landed bigint not null, -- the seq at which its write landed; 0 it did not
  due    bigint not null, -- from when on it may be purged; 0 never
  body   bytea not null,
  primary key (conv, key)
);
create index record_unresolved on {schema}.record (at) where open = 1;
create index record_waiting on {schema}.record (at) where open = 2;
create index record_inbound on {schema}.record (conv, at) where open = 2;
create index record_tail on {schema}.record (conv, landed) where landed > 0;
create index record_due on {schema}.record (due) where due > 0;

-- The leases of the deliveries at work. Renewing one changes no tag. A run and its nonce may be
-- longer together than an index allows; that there is one row for each is kept by the lock on the
-- conversation.
create table {schema}.lease (
  conv  bigint not null,
  run   bytea not null,
  nonce bytea not null,
  until bigint not null
) with (fillfactor = 50);
create index lease_conv on {schema}.lease (conv);

-- The directory of runs: the conversation that each lives in, or a tombstone.
create table {schema}.home (
  run          bytea not null primary key,
  conversation bytea, -- null for a tombstone
  tombstone    bytea,
  due          bigint not null -- of a tombstone
);
create index home_due on {schema}.home (due) where conversation is null;

-- For people. Nothing of the library reads what follows, and none of it fails on bytes that are
-- no text: they are shown as they are, escaped.

create function {schema}.as_text(bytes bytea) returns text language plpgsql immutable as $function$
begin
  return convert_from(bytes, 'UTF8');
exception when others then
  return encode(bytes, 'escape');
end $function$;

-- jsonb knows no NUL: it is shown as U+FFFD. A string that begins with one is the base64 of bytes
-- that are no text.
create function {schema}.as_json(bytes bytea) returns jsonb language plpgsql immutable as $function$
begin
  return regexp_replace(convert_from(bytes, 'UTF8'), '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::jsonb;
exception when others then
  return jsonb_build_object('bytes', encode(bytes, 'escape'));
end $function$;

create function {schema}.as_time(ms bigint) returns timestamptz language sql immutable as $function$
  select case when ms > 0 and ms < 253402300800000 then to_timestamp(ms / 1000.0) end
$function$;

create view {schema}.readable as
select
  {schema}.as_text(c.name) as conversation,
  case left({schema}.as_text(r.key), 2)
    when '' then 'head' when 'r/' then 'run' when 'e/' then 'effect' when 'i/' then 'inbound' when 'o/' then 'report' when 'x/' then 'reference'
  end as kind,
  {schema}.as_text(r.key) as key,
  case r.open when 1 then 'unresolved effect' when 2 then 'open message' end as waits,
  case when r.open <> 0 then {schema}.as_time(r.at) end as since,
  nullif(r.landed, 0) as landed,
  {schema}.as_time(r.due) as due,
  {schema}.as_json(r.body) as body
from {schema}.conversation c cross join lateral (
  select ''::bytea as key, 0::smallint as open, 0::bigint as at, 0::bigint as landed, c.due, c.head as body
  union all
  select key, open, at, landed, due, body from {schema}.record where conv = c.id
) r;
