-- How an agent's turns ended, for its trust score; and its sessions by its id, whoever deployed it.
alter table troupe.sessions
  -- But for cancelled turns.
  add column ended bigint not null default 0,
  add column completed bigint not null default 0,
  add column errored bigint not null default 0,
  -- Days (UTC) on which a turn was completed; the last of them since 1970-01-01, -1 = none.
  add column service_days bigint not null default 0,
  add column last_service_day bigint not null default -1;

create index sessions_of_agent on troupe.sessions (agent_id);

-- The rows of before have no such figures: they are made again.
delete from troupe.projection_checkpoints where projection = 'sessions';
