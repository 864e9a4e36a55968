// Which labels are drawn: none over another. What does not fit now is shown when the
// picture is enlarged, and is always in the words about what is looked at.

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Wanted {
  id: string;
  box: Box;
}

/** Bounds the work; what comes later in the list is not drawn. */
const most = 600;

const overlap = (a: Box, b: Box): boolean => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

const inside = (a: Box, b: Box): boolean => a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height;

/**
 * The labels that fit, the first ones first, and over none of the obstacles. Those
 * that are not wholly in the view are left out.
 */
export function fitting(wanted: readonly Wanted[], obstacles: readonly Box[], view: Box): Set<string> {
  const taken = obstacles.filter((o) => overlap(o, view));
  const fits = new Set<string>();
  for (const { id, box } of wanted.filter((w) => inside(w.box, view)).slice(0, most)) {
    if (taken.some((t) => overlap(t, box))) continue;
    taken.push(box);
    fits.add(id);
  }
  return fits;
}

/** The box of lines of text at a point, when a letter is so wide and a line so high. */
export function textBox(lines: readonly string[], at: { x: number; y: number }, anchor: "start" | "middle" | "end", letter: number, line: number): Box {
  const width = Math.max(0, ...lines.map((l) => l.length)) * letter, height = lines.length * line;
  const x = anchor === "start" ? at.x : anchor === "end" ? at.x - width : at.x - width / 2;
  return { x, y: at.y, width, height };
}
