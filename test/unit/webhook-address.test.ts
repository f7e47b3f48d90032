/** Where a webhook may lead, what form its URL has, and how its secret and signature are made. */
import assert from 'node:assert/strict';
import { createHmac, createSecretKey } from 'node:crypto';
import { test } from 'node:test';
import { isPrivateAddress } from '../../actors/webhook/address.ts';
import { signature, verifySignature, webhookSecret } from '../../actors/webhook/signature.ts';
import { limits } from '../../contracts/limits.ts';
import { retryDelaysMs, webhookCommands, webhookTypes, webhookUrl } from '../../contracts/webhook.ts';

test('webhook address - [AUD-019] private, loopback, link-local and every other special address is refused, in any spelling', () => {
  for (const address of [
    '127.0.0.1', '127.255.255.255', '0.0.0.0', '0.1.2.3', '10.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.1.1', '169.254.169.254', '100.64.0.1', '100.127.255.255',
    '192.0.0.192', '192.0.2.1', '198.51.100.7', '203.0.113.9', '198.18.0.1', '198.19.255.255', '192.88.99.1', '224.0.0.1', '239.255.255.255', '240.0.0.1', '255.255.255.255',
    '::', '::1', '0:0:0:0:0:0:0:1', 'fe80::1', 'fe80::1%eth0', 'febf::1', 'fec0::1', 'fc00::1', 'fd00:ec2::254', 'ff02::1', 'ff0e::1',
    '::ffff:127.0.0.1', '::ffff:7f00:1', '::ffff:8.8.8.8', '0:0:0:0:0:ffff:a00:1', '::127.0.0.1', '::8.8.8.8',
    '64:ff9b::127.0.0.1', '64:ff9b::7f00:1', '64:ff9b::a00:1', '64:ff9b:0:0:0:0:169.254.169.254', '64:ff9b::c0a8:101', '64:ff9b:1::8.8.8.8', '64:ff9b::',
    '2002:7f00:1::', '2002:a00:1::1', '2002:808:808::1', '2001::1', '2001:0:53aa:64c::1', '2001:db8::1', '3fff::1', '100::1', '5f00::1', '4000::1',
    '', 'localhost', '8.8.8', '0x7f.1', '2130706433', '8.8.8.8 ', '2606:4700::1111%lo',
  ]) assert.equal(isPrivateAddress(address), true, address);
});

test('webhook address - public addresses are let through, also IPv4 behind NAT64', () => {
  for (const address of [
    '8.8.8.8', '1.1.1.1', '9.255.255.255', '11.0.0.0', '172.15.255.255', '172.32.0.0', '192.167.255.255', '192.169.0.0', '169.253.255.255', '169.255.0.0', '100.63.255.255', '100.128.0.0',
    '198.17.255.255', '198.20.0.0', '223.255.255.255', '126.255.255.255', '128.0.0.0',
    '2606:4700:4700::1111', '2a00:1450:4001:829::200e', '2600::', '64:ff9b::8.8.8.8', '64:ff9b::808:808', '64:ff9b:0:0:0:0:0808:0808',
  ]) assert.equal(isPrivateAddress(address), false, address);
});

test('webhook url - [AUD-018] only an https URL is taken, without credentials and fragment', () => {
  const configure = (url: unknown): boolean => webhookCommands.configure.input.safeParse({ url }).success;
  for (const url of ['https://hooks.example.com/troupe', 'https://hooks.example.com:8443/a?b=c', 'https://[2606:4700::1]/x', 'https://1.1.1.1', 'HTTPS://HOOKS.EXAMPLE.COM/', null]) assert.ok(configure(url), String(url));
  for (const url of [
    'http://hooks.example.com/', 'ftp://hooks.example.com/', 'wss://hooks.example.com/', 'javascript:alert(1)', 'file:///etc/passwd', 'hooks.example.com', '//hooks.example.com/', '/hook', '', ' ',
    'https://', 'https:///x', 'https://h.exa\tmple/', ' https://h.example/', 'https://h.example/\n', 'https:\\\\h.example\\', 'https://a:b@hooks.example.com/', 'https://a@hooks.example.com/', 'https://hooks.example.com/#x', 'https://hooks.example.com:0/', 'https://hooks.example.com:65536/', 'https://exa mple.com/',
    'https://h.example/\u202egnp', 'https://h.example/\u200b', 'https://h\u00ad.example/', 'https://h.example/\ue000',
    `https://hooks.example.com/${'x'.repeat(limits.webhookUrlMaxChars)}`, 5, {}, undefined,
  ]) assert.ok(!configure(url), JSON.stringify(url));
  assert.ok(webhookUrl.safeParse(`https://h.example/${'x'.repeat(limits.webhookUrlMaxChars - 18)}`).success);
});

test('webhook types - [AUD-009] usage.alert, plan.changed, session.finished and member.* are taken, nothing else', () => {
  const notify = (type: string): boolean => webhookCommands.notify.input.safeParse({ id: 'evt_1', type, created: '2030-01-01T00:00:00.000Z', data: {} }).success;
  assert.ok(webhookTypes.every((type) => notify(type)));
  assert.ok(webhookTypes.every((type) => ['usage.alert', 'plan.changed', 'session.finished'].includes(type) || type.startsWith('member.')));
  for (const type of ['member.', 'member', 'session.started', 'usage.alert ', 'USAGE.ALERT', 'org.deleted', '', '__proto__']) assert.ok(!notify(type), type);
});

test('webhook retries - the delays grow, and only the last is cut by the 24 hours', () => {
  assert.ok(retryDelaysMs.every((delay, i) => delay > (retryDelaysMs[i - 1] ?? 0)));
  const sum = (delays: readonly number[]): number => delays.reduce((total, delay) => total + delay, 0);
  const last = limits.webhookRetryForMs - sum(retryDelaysMs.slice(0, -1));
  assert.ok(last > (retryDelaysMs.at(-2) ?? 0) && last <= (retryDelaysMs.at(-1) ?? 0), String(last));
  assert.ok(limits.webhookWakeMs > limits.webhookDeadlineMs);
});

const masterKey = createSecretKey(Buffer.alloc(32, 7));
test('webhook secret - is one per master key, organization and version, and looks like one', () => {
  const secret = webhookSecret(masterKey, 'org_a', 1);
  assert.match(secret, /^whsec_[A-Za-z0-9_-]{43}$/);
  assert.equal(webhookSecret(createSecretKey(Buffer.alloc(32, 7)), 'org_a', 1), secret);
  const others = [webhookSecret(masterKey, 'org_a', 2), webhookSecret(masterKey, 'org_b', 1), webhookSecret(createSecretKey(Buffer.alloc(32, 8)), 'org_a', 1), webhookSecret(masterKey, 'org_a.1', 1), webhookSecret(masterKey, 'org_a', 11)];
  assert.equal(new Set([secret, ...others]).size, 6);
});

test('webhook signature - [AUD-014] is t=<unix>,v1=<hex HMAC-SHA256 of t.body>, as anybody can compute it', () => {
  const secret = webhookSecret(masterKey, 'org_a', 1);
  const body = '{"id":"evt_1","name":"Zoë"}';
  const expected = createHmac('sha256', Buffer.from(secret, 'utf8')).update(Buffer.from(`1900000000.${body}`, 'utf8')).digest('hex');
  assert.equal(signature([secret], 1_900_000_000, body), `t=1900000000,v1=${expected}`);
});

test('webhook signature - a receiver takes the right one only, fresh only', () => {
  const secret = webhookSecret(masterKey, 'org_a', 1);
  const body = '{"id":"evt_1"}';
  const nowSec = 1_900_000_000;
  const header = signature([secret], nowSec, body);
  const verify = (more: object): boolean => verifySignature({ secret, header, body, nowSec, ...more });
  assert.ok(verify({}));
  assert.ok(verify({ nowSec: nowSec + limits.webhookSignatureSec }) && verify({ nowSec: nowSec - limits.webhookSignatureSec }));
  assert.ok(verify({ header: `t=${nowSec},v1=${'0'.repeat(64)},${header.slice(header.indexOf('v1='))}` }), 'two signatures while a secret changes');
  assert.ok(verify({ header: `${header},v2=x` }), 'later schemes are ignored');
  const [t = '', v1 = ''] = header.split(',');
  for (const [what, more] of Object.entries({
    'another body': { body: '{"id":"evt_2"}' }, 'another secret': { secret: webhookSecret(masterKey, 'org_a', 2) }, 'too late': { nowSec: nowSec + limits.webhookSignatureSec + 1 },
    'too early': { nowSec: nowSec - limits.webhookSignatureSec - 1 }, 'another time': { header: `t=${nowSec + 1},${v1}` }, 'no time': { header: v1 }, 'no signature': { header: t }, nothing: { header: '' },
    'two times': { header: `t=${nowSec},${header}` }, 'a time that is no number': { header: `t=NaN,${v1}` }, 'upper case': { header: header.toUpperCase() }, 'cut short': { header: header.slice(0, -1) }, 'longer': { header: `${header}00` },
    'a leading zero': { header: `t=0${nowSec},${v1}` },
  })) assert.equal(verify(more), false, what);
});
