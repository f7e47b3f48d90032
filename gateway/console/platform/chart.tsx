/**
 * A bar chart drawn by uPlot, with its figures in a table beside it.
 *
 * Guarantee: everything the drawing shows is in the table, as text. By keyboard the chart is a slider over its bars (arrow keys, Home, End)
 * whose value is spoken. Colours are the page's own and follow the colour scheme; the width follows the page. uPlot sets styles by script
 * only, which the content security policy allows. It is loaded when the first chart is shown: it refuses to load in a browser whose language is no
 * language tag, and then there is the table alone.
 */
import type { VNode } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';

export interface Bars {
  readonly label: string;
  /** One for each bar. */
  readonly values: readonly number[];
  /** The CSS variable of its colour. */
  readonly color: '--accent' | '--good';
}

export interface ChartProps {
  readonly title: string;
  /** Heading of the table's first column. */
  readonly of: string;
  /** Name of each bar. */
  readonly names: readonly string[];
  /** Stacked, the first at the foot. */
  readonly bars: readonly [Bars, ...Bars[]];
  /** How a figure is written. */
  readonly write: (value: number) => string;
}

const heightPx = 220;
const longestName = 14;
const short = (name: string): string => (name.length > longestName ? `${name.slice(0, longestName - 1)}…` : name);

/** The tops of stacked bars: uPlot draws the later over the earlier, so the highest comes first. */
const tops = (bars: readonly Bars[]): { readonly bars: Bars; readonly tops: number[] }[] => {
  const sums = bars.map((_, upTo) => (bars[0]?.values ?? []).map((__, at) => bars.slice(0, upTo + 1).reduce((sum, { values }) => sum + (values[at] ?? 0), 0)));
  return bars.map((one, at) => ({ bars: one, tops: sums[at] ?? [] })).toReversed();
};

const short10 = (value: number): string => Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 }).format(value);

const draw = (Plot: typeof uPlot, into: HTMLElement, { names, bars }: ChartProps): uPlot => {
  const style = getComputedStyle(into);
  const color = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { stroke: color('--line'), width: 1 }, font: '12px system-ui, sans-serif' };
  const series = tops(bars);
  const paths = Plot.paths.bars?.({ size: [0.6, 64] });
  return new Plot({
    width: into.clientWidth, height: heightPx, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false, setScale: false }, points: { show: false } },
    scales: { x: { time: false, range: () => [-0.5, names.length - 0.5] }, y: { range: (_plot, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, grid: { show: false }, splits: () => names.map((_, at) => at), values: (_plot, splits) => splits.map((at) => short(names[at] ?? '')) },
      { ...axis, size: 56, values: (_plot, splits) => splits.map(short10) },
    ],
    series: [{}, ...series.map(({ bars: { label, color: name } }) => ({ label, fill: color(name), stroke: color(name), width: 0, points: { show: false }, ...(paths === undefined ? {} : { paths }) }))],
  }, [names.map((_, at) => at), ...series.map((one) => one.tops)], into);
};

export const Chart = (props: ChartProps): VNode => {
  const { title, of, names, bars, write } = props;
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [at, setAt] = useState(0);
  const drawn = JSON.stringify([names, bars]);
  const here = Math.min(at, names.length - 1);
  useEffect(() => {
    const into = frame.current;
    if (into === null) return;
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    let gone = false;
    let draws: (() => void) | undefined;
    const again = (): void => { draws?.(); };
    import('uplot').then(({ default: Plot }) => {
      draws = (): void => {
        plot.current?.destroy();
        plot.current = draw(Plot, into, props);
      };
      if (!gone) draws();
    }, reportError);
    const sized = new ResizeObserver(() => { plot.current?.setSize({ width: into.clientWidth, height: heightPx }); });
    sized.observe(into);
    scheme.addEventListener('change', again);
    return () => {
      gone = true;
      sized.disconnect();
      scheme.removeEventListener('change', again);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [drawn]);
  const point = (to: number): void => {
    const next = Math.max(0, Math.min(names.length - 1, to));
    setAt(next);
    plot.current?.setCursor({ left: plot.current.valToPos(next, 'x'), top: 0 });
  };
  const steps: Readonly<Record<string, number>> = { ArrowRight: here + 1, ArrowUp: here + 1, ArrowLeft: here - 1, ArrowDown: here - 1, Home: 0, End: names.length - 1 };
  const spoken = `${names[here] ?? ''}: ${bars.map(({ label, values }) => `${label} ${write(values[here] ?? 0)}`).join(', ')}`;
  return (
    <figure class="chart">
      <figcaption>{title}{bars.length > 1 && <span class="legend">{bars.map(({ label, color }) => <span key={label} class={color.slice(2)}>{label}</span>)}</span>}</figcaption>
      <div
        ref={frame} class="plot" role="slider" tabIndex={0} aria-label={title} aria-valuemin={1} aria-valuemax={names.length} aria-valuenow={here + 1} aria-valuetext={spoken}
        onFocus={() => { point(here); }}
        onKeyDown={(event) => {
          const to = steps[event.key];
          if (to === undefined) return;
          event.preventDefault();
          point(to);
        }}
      />
      <p class="hint" aria-hidden="true">{spoken}</p>
      <div class="scrolled" role="region" aria-label={`${title}, as a table`} tabIndex={0}>
        <table>
          <caption class="hidden">{title}</caption>
          <thead><tr><th scope="col">{of}</th>{bars.map(({ label }) => <th key={label} scope="col" class="number">{label}</th>)}</tr></thead>
          <tbody>{names.map((name, row) => <tr key={name}><th scope="row">{name}</th>{bars.map(({ label, values }) => <td key={label} class="number">{write(values[row] ?? 0)}</td>)}</tr>)}</tbody>
        </table>
      </div>
    </figure>
  );
};
