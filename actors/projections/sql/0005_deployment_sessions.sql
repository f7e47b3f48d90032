-- Sessions of deployments: whose they are, what their clients call them, and how many events those see.
alter table troupe.sessions
  add column deployment_id text,
  add column session_id text,
  add column branch text,
  add column event_count bigint not null default 0;

create index sessions_of_deployment on troupe.sessions (org, deployment_id, created_at desc, sid desc) where deployment_id is not null;

-- The rows of before have no such counts: they are made again.
delete from troupe.projection_checkpoints where projection = 'sessions';
