-- ?1 the time if not the ledger's clock, ?2 names from, ?3 names below or null, ?4 one name or null, ?5 how
-- many, ?6 ?7 ?8 due, name and key of the row to go on behind, or what is below them all
select c.name as name, r.key as key, r.open, r.at, r.landed, r.due as due, r.body
from record r cross join conversation c on c.id = r.conv
where r.due > 0 and r.due <= coalesce(?1, (select now from clock)) and r.due >= ?6
  and c.name >= ?2 and (?3 is null or c.name < ?3) and (?4 is null or c.name = ?4)
  and (r.due, c.name, r.key) > (?6, ?7, ?8)
union all
select c.name, x'', 0, 0, 0, c.due, c.head
from conversation c
where c.due > 0 and c.due <= coalesce(?1, (select now from clock)) and c.due >= ?6
  and c.name >= ?2 and (?3 is null or c.name < ?3) and (?4 is null or c.name = ?4)
  and (c.due, c.name, x'') > (?6, ?7, ?8)
order by due, name, key
limit ?5 + 0
