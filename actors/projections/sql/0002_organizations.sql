-- Organizations, who is in them, and their audit logs. Rows are made of the organizations' journals only and can be made again.

create table troupe.organizations (
  id text primary key,
  name text not null,
  slug text not null,
  plan text not null,
  created_at timestamptz not null
);

-- Goes with its organization.
create table troupe.memberships (
  organization_id text not null references troupe.organizations (id) on delete cascade,
  user_id text not null,
  role text not null check (role in ('viewer', 'member', 'admin', 'owner')),
  joined_at timestamptz not null,
  primary key (organization_id, user_id)
);

create index memberships_of_user on troupe.memberships (user_id, joined_at, organization_id);

-- One row per change, never touched again. Stays when its organization is deleted, when nobody can read it any more.
create table troupe.audit (
  organization_id text not null,
  -- Of the event: a ULID, ascending within the organization.
  id text collate "C" not null,
  actor_id text not null,
  action text not null,
  resource_type text not null,
  resource_id text not null,
  -- As text: what a JSON string may hold, jsonb may not.
  metadata json not null,
  ip_address text not null,
  user_agent text not null,
  created_at timestamptz not null,
  primary key (organization_id, id)
);
