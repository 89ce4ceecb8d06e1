-- Copies the conversation thread-0000000 as thread-N, for N from {from} to {to}. Each was settled a millisecond
-- before the next; a thousand of them were last touched in the same hour, to which the ledger rounds when a conversation is due.
insert into fencedrun.conversation (name, tag, head, due)
  select convert_to(replace(convert_from(c.name, 'UTF8'), '0000000', lpad(n::text, 7, '0')), 'UTF8'), c.tag,
    convert_to(replace(convert_from(c.head, 'UTF8'), 'thread-0000000', 'thread-' || lpad(n::text, 7, '0')), 'UTF8'), c.due - n / 1000 * 3600000::bigint
  from fencedrun.conversation c, generate_series({from}, {to}) n
  where convert_from(c.name, 'UTF8') like '%/thread-0000000'
  order by n;
insert into fencedrun.record (conv, key, open, at, landed, due, body)
  select copy.id, convert_to(replace(convert_from(r.key, 'UTF8'), 'thread-0000000', 'thread-' || lpad(n::text, 7, '0')), 'UTF8'),
    r.open, r.at, r.landed, r.due - {to} + n - 1,
    convert_to(replace(convert_from(r.body, 'UTF8'), 'thread-0000000', 'thread-' || lpad(n::text, 7, '0')), 'UTF8')
  from generate_series({from}, {to}) n
  cross join fencedrun.conversation c
  join fencedrun.record r on r.conv = c.id
  join fencedrun.conversation copy on copy.name = convert_to(replace(convert_from(c.name, 'UTF8'), '0000000', lpad(n::text, 7, '0')), 'UTF8')
  where convert_from(c.name, 'UTF8') like '%/thread-0000000'
  order by n;
insert into fencedrun.home (run, conversation, tombstone, due)
  select convert_to(replace(convert_from(h.run, 'UTF8'), '0000000', lpad(n::text, 7, '0')), 'UTF8'),
    convert_to(replace(convert_from(h.conversation, 'UTF8'), '0000000', lpad(n::text, 7, '0')), 'UTF8'), h.tombstone, h.due
  from fencedrun.home h, generate_series({from}, {to}) n
  where convert_from(h.conversation, 'UTF8') like '%/thread-0000000';
