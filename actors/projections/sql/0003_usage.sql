-- What was used, added up. Rows are made of the metering events of sessions and completions only and can be made again.
create table troupe.usage (
  -- Projection that wrote the row: each has its own rows.
  source text not null,
  -- Who pays: an organization's id, or u-<user id>.
  org text not null,
  -- Who asked: a user's or an API key's id.
  used_by text not null,
  model text not null,
  -- The hour (UTC) in which the turns ended.
  hour timestamptz not null,
  turns bigint not null,
  input_tokens bigint not null,
  output_tokens bigint not null,
  cost_cents bigint not null,
  primary key (source, org, used_by, model, hour)
);

create index usage_of_user on troupe.usage (used_by, hour);
create index usage_of_org on troupe.usage (org, hour);
