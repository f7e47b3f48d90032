/** A dial: a figure on an arc. The figure is text beside it; the arc is for the eye alone. */
import type { VNode } from 'preact';

const radius = 40;
const point = (share: number): string => {
  const angle = Math.PI * (1 - share);
  return `${(50 + radius * Math.cos(angle)).toFixed(2)} ${(50 - radius * Math.sin(angle)).toFixed(2)}`;
};
const arc = (share: number): string => `M ${point(0)} A ${radius} ${radius} 0 0 1 ${point(share)}`;

export interface DialProps {
  readonly label: string;
  /** 0 to 1. */
  readonly share: number;
  /** The figure as it is written. */
  readonly text: string;
  readonly tone: 'good' | 'warn' | 'bad';
}

export const Dial = ({ label, share, text, tone }: DialProps): VNode => {
  const within = Math.max(0, Math.min(1, share));
  return (
    <div class={`dial ${tone}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(within * 100)} aria-valuetext={text}>
      <svg viewBox="0 0 100 56" aria-hidden="true"><path class="whole" d={arc(1)} />{within > 0 && <path class="part" d={arc(within)} />}</svg>
      <strong>{text}</strong>
      <span class="hint">{label}</span>
    </div>
  );
};
