-- Copies the conversation thread-0000000 as thread-N, for N from {from} to {to}. Each was settled a millisecond
-- before the next; a thousand of them were last touched in the same hour, to which the ledger rounds when a conversation is due.
begin;
create temp table copy as
  with recursive n (n) as (select {from} union all select n + 1 from n where n < {to})
  select n, 'thread-' || printf('%07d', n) as name from n;
insert into conversation (name, tag, head, due)
  select cast(replace(cast(c.name as text), 'thread-0000000', copy.name) as blob), c.tag,
    cast(replace(cast(c.head as text), 'thread-0000000', copy.name) as blob), c.due - n / 1000 * 3600000
  from conversation c cross join temp.copy
  where cast(c.name as text) like '%/thread-0000000'
  order by n;
insert into record (conv, key, open, at, landed, due, body)
  select made.id, cast(replace(cast(r.key as text), 'thread-0000000', copy.name) as blob), r.open, r.at, r.landed, r.due - {to} + n - 1,
    cast(replace(cast(r.body as text), 'thread-0000000', copy.name) as blob)
  from temp.copy
  cross join conversation c
  cross join conversation made on made.name = cast(replace(cast(c.name as text), 'thread-0000000', copy.name) as blob)
  cross join record r on r.conv = c.id
  where c.id = (select id from conversation where cast(name as text) like '%/thread-0000000');
insert into home (run, conversation, tombstone, due)
  select cast(replace(cast(h.run as text), 'thread-0000000', copy.name) as blob),
    cast(replace(cast(h.conversation as text), 'thread-0000000', copy.name) as blob), h.tombstone, h.due
  from home h cross join temp.copy
  where cast(h.conversation as text) like '%/thread-0000000';
drop table temp.copy;
commit;
