/** A trust score with each of its factors explained: what it counts, how much it weighs, what raises it (interface 2.8, 2.9; decisions, Trust). */
import type { VNode } from 'preact';
import { useId } from 'preact/hooks';
import type { Factors } from '../figures.ts';
import { day } from '../resources.ts';

type Name = keyof Factors;
interface Explained {
  readonly title: string;
  /** Share of the score, in percent. */
  readonly percent: number;
  readonly counts: string;
  readonly raise: string;
}

const levels: Readonly<Record<string, string>> = { unverified: 'from 0', basic: 'from 0.3', verified: 'from 0.6', trusted: 'from 0.8' };
const order: readonly Name[] = ['identity', 'history', 'reputation', 'economic'];

export const ofUser: Readonly<Record<Name, Explained>> = {
  identity: {
    title: 'Identity', percent: 25, counts: 'It begins at 0.2. A verified e-mail address adds 0.3, a sign-in with Google or GitHub 0.5, a domain of yours 0.7; each kind once, to 1 at most.',
    raise: 'Sign in with Google or GitHub once, or verify a domain below.',
  },
  history: {
    title: 'History', percent: 25, counts: 'The days on which you used your account: 1 day gives 0.13, 30 days 0.63, 80 days 0.80, 240 days 1.',
    raise: 'It grows by itself on every day on which you use your account.',
  },
  reputation: {
    title: 'Reputation', percent: 25, counts: 'Endorsements by others, and skills and prompts that you published. It is 0.5 as long as nobody has said anything; 10 give 0.81, 50 give 1.',
    raise: 'Endorsements and publications are not open on this installation yet: everybody has 0.5.',
  },
  economic: {
    title: 'Economic', percent: 25, counts: 'Payments give up to 0.4 (12 are full), used credits up to 0.4 (10,000 are full), a wallet in custody 0.2.',
    raise: 'Use credits, keep a paid plan, or make a wallet.',
  },
};

export const ofAgent: Readonly<Record<Name, Explained>> = {
  identity: { title: 'Identity', percent: 20, counts: 'Who deployed it: 0.2 for an unverified organization, 0.5 basic, 0.8 verified, 1 trusted. An organization\'s level is the best of its owners\'.', raise: 'An owner raises their own score.' },
  history: { title: 'History', percent: 30, counts: 'Half days of service (90 are full), half sessions (100 are full), lowered by the share of turns that failed.', raise: 'Serve on more days and fail less.' },
  reputation: { title: 'Reputation', percent: 30, counts: 'The share of turns that were completed, and evaluations by others; it begins at 0.5 and leaves it as more is known.', raise: 'Complete what is begun.' },
  economic: { title: 'Economic', percent: 20, counts: 'Payments give up to 0.4 (12 are full), used credits up to 0.4 (10,000 are full); an agent has no wallet of its own.', raise: 'Work that is paid for.' },
};

const written = (value: number, digits = 2): string => value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

const Factor = ({ value, explained: { title, percent, counts, raise } }: { value: number; explained: Explained }): VNode => {
  const id = useId();
  return (
    <li class="factor">
      <h3 id={id}>{title} <span class="tag">{written(value)}</span></h3>
      <meter aria-labelledby={id} min={0} max={1} value={value} />
      <p>{counts}</p>
      <p class="hint">{percent} % of the score: adds {written(value * percent / 100, 3)} of {written(percent / 100)}. {value >= 1 ? 'It is complete.' : raise}</p>
    </li>
  );
};

export const Score = ({ score, level, factors, updatedAt, explained }: { score: number; level: string; factors: Factors; updatedAt: string; explained: Readonly<Record<Name, Explained>> }): VNode => (
  <>
    <p class="score"><strong>{written(score)}</strong> <span class="tag">{level}</span></p>
    <p class="hint">From 0 to 1, computed {day(updatedAt)} from what is known now. Levels: {Object.entries(levels).map(([name, from]) => `${name} ${from}`).join(', ')}.</p>
    <ul class="rows factors">{order.map((name) => <Factor key={name} value={factors[name]} explained={explained[name]} />)}</ul>
  </>
);
