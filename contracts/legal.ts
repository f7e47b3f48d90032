/**
 * The documents a person accepts, and their manifest (decisions, Billing: legal). An installation of its own sets
 * `platform.legal_manifest_path`; these texts are for development and say so.
 *
 * A text is blocks between empty lines; the first line `# …` is its title, `## …` a heading.
 */
import { z } from 'zod';

/** Hash = SHA-256 (hex) of `{documents, version}` as canonical JSON (RFC 8785). */
export const legalManifest = z.strictObject({
  version: z.string().min(1).max(64),
  documents: z.array(z.strictObject({
    id: z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/), title: z.string().min(1).max(200),
    url: z.url({ protocol: /^https?$/ }), sha256: z.string().regex(/^[0-9a-f]{64}$/),
  })).min(1).max(16),
});
export type LegalManifest = z.infer<typeof legalManifest>;

export const developmentVersion = '2026-01-development';

/** Texts by id, in the order of the manifest; the gateway shows them under `/legal/<id>`. */
export const developmentDocuments: ReadonlyMap<string, string> = new Map([
  ['terms', `# Terms of service (development)

These are placeholder terms for development and tests. Whoever runs this software for others must replace them with their own.

## What this is

The service runs agents and stores what is said to them. Credits are units of usage; they are not cash and not stored value.

## No promise

A development installation is offered as it is. It may lose data, stop or change at any time.
`],
  ['privacy', `# Privacy notice (development)

This is a placeholder notice for development and tests. Whoever runs this software for others must replace it with their own.

## What is stored

The e-mail address and name of an account, its sign-ins with remote address and browser, its organizations, and the conversations with agents.

## For how long

Conversations stay until they or their organization are deleted, or as the organization's retention setting says.
`],
  ['processing', `# Processing by model providers (development)

This is a placeholder for development and tests. Whoever runs this software for others must replace it with their own.

## What is passed on

What is sent to an agent is passed on to the model provider that this installation is configured with, and to the tools the agent uses.
`],
]);
