-- ?1 conversation, ?2 keys from, ?3 keys below or null, ?4 behind this key or null, ?5 how many
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from conversation c cross join record r on r.conv = c.id
where c.name = ?1 and r.key >= ?2 and (?3 is null or r.key < ?3) and (?4 is null or r.key > ?4)
order by r.key
limit ?5 + 0
