-- ?1 open, ?2 at most this at, ?3 names from, ?4 names below or null, ?5 one name or null, ?6 how many,
-- ?7 ?8 ?9 at, name and key of the row to go on behind, or what is below them all
select c.name, r.key, r.open, r.at, r.landed, r.due, r.body
from record r cross join conversation c on c.id = r.conv
where r.open = ?1 + 0 and r.open > 0 and r.at <= ?2 and r.at >= ?7
  and c.name >= ?3 and (?4 is null or c.name < ?4) and (?5 is null or c.name = ?5)
  and (r.at, c.name, r.key) > (?7, ?8, ?9)
order by r.at, c.name, r.key
limit ?6 + 0
