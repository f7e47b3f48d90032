-- Checkpoints of all projections, and the sessions of each user. Rows are made of the journal only and can be made again.

-- How far a projection has read a journal stream. It moves in the transaction that writes the rows.
create table troupe.projection_checkpoints (
  projection text not null,
  stream text not null,
  -- When the stream was made, as NATS says it: another stream of the same name is another journal.
  stream_created text not null,
  -- Stream sequence of the last commit whose rows are written, 0 before the first.
  seq bigint not null check (seq >= 0),
  updated_at timestamptz not null default now(),
  primary key (projection, stream)
);

create table troupe.sessions (
  -- Subject tokens (contracts/subjects.ts encodeToken): plain ids as they are.
  org text not null,
  sid text not null,
  user_id text not null,
  project_id text not null,
  label text,
  model text not null,
  agent_id text not null,
  created_at timestamptz not null,
  last_event_at timestamptz not null,
  state text not null check (state in ('idle', 'running', 'waiting_approval')),
  turns bigint not null default 0,
  input_tokens bigint not null default 0,
  output_tokens bigint not null default 0,
  cost_cents bigint not null default 0,
  -- The running turn, and its tool calls that wait for a person.
  run_id text,
  waiting bigint not null default 0,
  primary key (org, sid)
);

create index sessions_of_user on troupe.sessions (org, user_id, created_at desc, sid desc);
