-- What somebody would write by hand to remember that an effect was begun and how it ended.
create table floor (
  id     bigint primary key,
  state  text not null,
  result bytea
);

-- One row, written before every measurement. See flush in postgres.go.
create table flush (n bigint not null);
insert into flush values (0)
