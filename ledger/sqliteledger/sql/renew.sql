-- ?1 leases (a JSON array of [conversation, run, nonce] in hex), ?2 until
update lease set until = ?2
where (conv, run, nonce) in (
  select c.id, unhex(k.value ->> 1), unhex(k.value ->> 2)
  from json_each(?1) k cross join conversation c on c.name = unhex(k.value ->> 0)
)
