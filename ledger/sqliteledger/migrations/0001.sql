-- No arguments. Runs inside the transaction of the migration.

-- One conversation: the tag that compare-and-swap compares, and the head.
create table conversation (
  id   integer primary key,
  name blob not null unique,
  tag  blob not null,
  head blob not null,
  due  integer not null -- from when on it may be purged, milliseconds since 1970; 0 never
) strict;
create index conversation_due on conversation (due) where due > 0;

-- Its rows: a key, the columns that an index needs, and bytes that nothing here looks into.
create table record (
  conv   integer not null,
  key    blob not null,
  open   integer not null, -- what the row waits for: 0 nothing, 1 an unresolved effect, 2 an open message
  at     integer not null, -- since when it waits
  landed integer not null, -- the seq at which its write landed; 0 it did not
  due    integer not null, -- from when on it may be purged; 0 never
  body   blob not null,
  primary key (conv, key)
) strict, without rowid;
create index record_open on record (open, at) where open > 0;
create index record_wait on record (conv, at) where open = 2;
create index record_tail on record (conv, landed) where landed > 0;
create index record_due on record (due) where due > 0;

-- The leases of the deliveries at work. Renewing one changes no tag.
create table lease (
  conv  integer not null,
  run   blob not null,
  nonce blob not null,
  until integer not null,
  primary key (conv, run, nonce)
) strict, without rowid;

-- The directory of runs: the conversation that each lives in, or a tombstone.
create table home (
  run          blob not null primary key,
  conversation blob, -- null for a tombstone
  tombstone    blob,
  due          integer not null -- of a tombstone
) strict, without rowid;
create index home_due on home (due) where conversation is null;

-- The ledger's clock in milliseconds since 1970. Every process reads this one.
create view clock as select cast(round(unixepoch('subsec') * 1000) as integer) as now;
