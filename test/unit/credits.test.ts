/** Credits are units of use: over everything that can be asked from outside, and of a wallet, nothing gives them out, moves them or makes money of them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { z } from 'zod';
import { wallet } from '../../actors/wallet/wallet.ts';
import { platformRouteList } from '../../contracts/platform-routes.ts';
import { routeList } from '../../contracts/routes.ts';
import { walletCommands, walletEvents } from '../../contracts/wallet.ts';

/** Every property name in a JSON schema. */
const fieldsOf = (schema: unknown): string[] => {
  if (typeof schema !== 'object' || schema === null) return [];
  const own = 'properties' in schema && typeof schema.properties === 'object' && schema.properties !== null ? Object.keys(schema.properties) : [];
  return [...own, ...Object.values(schema).flatMap(fieldsOf)];
};

test('credits - no route takes credits or pays them out; a wallet can be charged, granted its plan and asked, by the system alone [BIL-019]', () => {
  for (const { id, path, body, method } of [...platformRouteList, ...routeList]) {
    assert.ok(!/credit|wallet\/|payout|redeem|refund|withdraw/i.test(path.replace(/^\/custody\//, '')), path);
    if (!(body instanceof z.ZodType)) continue;
    // What somebody could name to move: none of it is a field of anything that is sent.
    const named = fieldsOf(z.toJSONSchema(body, { io: 'input', unrepresentable: 'any' })).filter((field) => /credit|balance|payout/i.test(field));
    assert.deepEqual(named, [], `${method} ${path} (${id})`);
  }
  assert.deepEqual(Object.keys(walletCommands).toSorted(), ['balance', 'charge', 'grant', 'lapse', 'renew']);
  for (const [name, { access }] of Object.entries(wallet().spec.commands)) assert.equal(access, 'system', name);
  // No event lowers what was used but a new period, and none names another wallet.
  assert.deepEqual(Object.keys(walletEvents).toSorted(), ['AlertRaised', 'Charged', 'Granted', 'Lapsed', 'Renewed']);
  const named = Object.values({ ...walletCommands, ...walletEvents }).flatMap((one) => fieldsOf(z.toJSONSchema(one instanceof z.ZodType ? one : one.input)));
  assert.deepEqual(named.filter((field) => /^(to|from|target|recipient|payee|wallet|org|organization)(_?id)?$/i.test(field)), []);
  assert.equal(walletCommands.charge.input.safeParse({ turn_id: 't', cents: -1, model: 'm', by: 'u', input_tokens: 0, output_tokens: 0, at: 0 }).success, false, 'a charge gives nothing back');
});
