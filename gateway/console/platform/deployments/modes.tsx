/**
 * How the economic mode changed, as a line of steps over time drawn by uPlot, and as a table. Everything drawn is in the table; the drawing
 * itself is for the eye.
 */
import type { VNode } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type uPlot from 'uplot';
import type { History } from './services.ts';

type Mode = History['modes'][number]['to'];
/** From the poorest to the richest: the height in the drawing. */
const ladder: readonly Mode[] = ['Hibernate', 'Hustle', 'Conserving', 'Sovereign'];
const heightPx = 200;
/** Colour of the line and of what is under it. */
const lineWidth = 2;

/** Times (seconds) and heights; the last one lasts until now. */
const stepsOf = (modes: History['modes'], current: Mode, now: number): [number[], number[]] => {
  const [first] = modes;
  const points = [
    ...(first === undefined ? [] : [{ at: Math.min(first.at - 1, first.at - (now - first.at) / 20), mode: first.from }]),
    ...modes.map(({ at, to }) => ({ at, mode: to })), { at: now, mode: current },
  ];
  return [points.map(({ at }) => at / 1_000), points.map(({ mode }) => ladder.indexOf(mode))];
};

const draw = (Plot: typeof uPlot, into: HTMLElement, data: [number[], number[]]): uPlot => {
  const style = getComputedStyle(into);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line'), width: 1 }, font: '12px system-ui, sans-serif' };
  const paths = Plot.paths.stepped?.({ align: 1 });
  return new Plot({
    width: into.clientWidth, height: heightPx, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: true }, y: { range: [-0.3, ladder.length - 0.7] } },
    axes: [axis, { ...axis, size: 90, splits: () => ladder.map((_, at) => at), values: (_plot, splits) => splits.map((at) => ladder[at] ?? '') }],
    series: [{}, { stroke: color('--accent'), width: lineWidth, points: { show: false }, ...(paths === undefined ? {} : { paths }) }],
  }, data, into);
};

const Line = ({ modes, current, now }: { modes: History['modes']; current: Mode; now: number }): VNode => {
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const into = frame.current;
    if (into === null) return;
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    let plot: uPlot | undefined;
    let over = false;
    const sized = new ResizeObserver(() => { plot?.setSize({ width: into.clientWidth, height: heightPx }); });
    let again = (): void => undefined;
    // Loaded here: as a module it throws where the browser's language is no language tag, and then the table is what there is.
    import('uplot').then(({ default: Plot }) => {
      if (over) return;
      again = () => {
        plot?.destroy();
        plot = draw(Plot, into, stepsOf(modes, current, now));
      };
      again();
      sized.observe(into);
    }, () => undefined);
    const redraw = (): void => again();
    scheme.addEventListener('change', redraw);
    return () => {
      over = true;
      sized.disconnect();
      scheme.removeEventListener('change', redraw);
      plot?.destroy();
    };
  }, [modes, current, now]);
  return <div ref={frame} class="plot" role="img" aria-label={`The mode over time: ${modes.map(({ to }) => to).join(', then ')}. The table has the figures.`} />;
};

const moment = (at: number): string => new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/** `now`: Unix milliseconds up to which the line goes. */
export const Modes = ({ modes, current, now }: { modes: History['modes']; current: Mode; now: number }): VNode => (
  <section class="card" aria-labelledby="modes">
    <h2 id="modes">Mode history</h2>
    {modes.length === 0 ? <p class="hint">The mode has not changed since the deployment began: {current}.</p> : (
      <>
        <Line modes={modes} current={current} now={now} />
        <div class="scrolled" role="region" aria-label="Mode history, as a table" tabIndex={0}>
          <table>
            <thead><tr><th scope="col">When</th><th scope="col">From</th><th scope="col">To</th><th scope="col" class="number">Ratio</th></tr></thead>
            <tbody>
              {modes.toReversed().map(({ at, from, to, ratio }, index) => (
                <tr key={`${at} ${index}`}><th scope="row">{moment(at)}</th><td>{from}</td><td>{to}</td><td class="number">{ratio === null ? '∞' : ratio.toFixed(2)}</td></tr>
              ))}
            </tbody>
          </table>
        </div>
      </>
    )}
  </section>
);
