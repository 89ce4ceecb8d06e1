do $migrate$ begin
  if not exists (select from {schema}.migration where version = {version}) then
{text}
    insert into {schema}.migration (version) values ({version});
  end if;
end $migrate$;
