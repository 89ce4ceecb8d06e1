create table floor (
  id     integer primary key,
  state  text not null,
  result blob
)
