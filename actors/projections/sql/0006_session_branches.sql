-- Branches of sessions: what each was forked from, and whether it may act outside of its session.
alter table troupe.sessions
  add column from_branch text,
  add column fork_at text,
  add column armed boolean not null default true;

create index sessions_branches on troupe.sessions (org, deployment_id, session_id, created_at) where session_id is not null;
