-- ?1 leases as in renew.sql. One row for each, in their order.
select c.tag, l.until
from json_each(?1) k
left join conversation c on c.name = unhex(k.value ->> 0)
left join lease l on l.conv = c.id and l.run = unhex(k.value ->> 1) and l.nonce = unhex(k.value ->> 2)
order by k.key
