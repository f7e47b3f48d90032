/** Where the documents of a graph stand in its picture: rings by depth around the one it begins at, each near what links to it. Pure. */
import { limits } from '../../../../contracts/limits.ts';
import type { GraphEdge, GraphNode } from './services.ts';

export interface Placed extends GraphNode {
  readonly x: number;
  readonly y: number;
  /** On which side of it its name has room. */
  readonly side: 'start' | 'middle' | 'end';
  /** Degrees by which its name is turned, clockwise around the document: in a crowd names point outwards. */
  readonly turn: number;
}
export interface Picture {
  readonly nodes: readonly Placed[];
  readonly edges: readonly { readonly from: Placed; readonly to: Placed; readonly edge: GraphEdge['edge'] }[];
  /** Half of its width and height. */
  readonly reach: number;
  /** Names point outwards. */
  readonly crowded: boolean;
  /** Documents that are not drawn. */
  readonly left: number;
}

const ringWidth = 130;
/** More documents than these are a crowd. */
const crowd = 16;

export const pictureOf = (nodes: readonly GraphNode[], edges: readonly GraphEdge[]): Picture => {
  const drawn = nodes.toSorted((a, b) => a.depth - b.depth).slice(0, limits.graphDrawnMax);
  const crowded = drawn.length > crowd;
  const depthOf = new Map(drawn.map(({ id, depth }) => [id, depth]));
  const angles = new Map<string, number>();
  const parentAngle = ({ id, depth }: GraphNode): number => {
    const parent = edges.find(({ from, to }) => to === id && depthOf.get(from) === depth - 1);
    return (parent === undefined ? undefined : angles.get(parent.from)) ?? 0;
  };
  const placed = new Map<string, Placed>();
  const deepest = drawn.at(-1)?.depth ?? 0;
  for (let depth = 0; depth <= deepest; depth++) {
    const ring = drawn.filter((node) => node.depth === depth).map((node) => ({ node, near: parentAngle(node) })).toSorted((a, b) => a.near - b.near);
    for (const [index, { node }] of ring.entries()) {
      // Rings are turned a little against each other, and two are not opposite each other: no line between them hides behind the middle.
      const angle = (2 * Math.PI * (index + (depth % 2 === 0 ? 0.5 : 0))) / Math.max(3, ring.length);
      angles.set(node.id, angle);
      const [x, y] = [Math.round(depth * ringWidth * Math.sin(angle)), Math.round(-depth * ringWidth * Math.cos(angle))];
      const degrees = Math.round((angle * 180) / Math.PI);
      const right = degrees % 360 < 180;
      placed.set(node.id, {
        ...node, x, y, turn: crowded && depth > 0 ? degrees + (right ? -90 : 90) : 0,
        side: depth === 0 || (!crowded && Math.abs(x) < ringWidth / 3) ? 'middle' : crowded ? (right ? 'start' : 'end') : x > 0 ? 'start' : 'end',
      });
    }
  }
  return {
    nodes: [...placed.values()], reach: (deepest + (crowded ? 1.2 : 0.4)) * ringWidth, crowded, left: nodes.length - drawn.length,
    edges: edges.flatMap(({ from, to, edge }) => {
      const [a, b] = [placed.get(from), placed.get(to)];
      return a === undefined || b === undefined ? [] : [{ from: a, to: b, edge }];
    }),
  };
};
