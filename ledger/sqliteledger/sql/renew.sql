-- ?1 leases (a JSON array of [conversation, run, nonce] in hex), ?2 until
update lease set until = ?2
from (
  select c.id as conv, unhex(k.value ->> 1) as run, unhex(k.value ->> 2) as nonce
  from json_each(?1) k cross join conversation c on c.name = unhex(k.value ->> 0)
) q
where lease.conv = q.conv and lease.run = q.run and lease.nonce = q.nonce
