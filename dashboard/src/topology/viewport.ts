// Which part of the picture is seen: its middle, and how much it is enlarged.

import type { Box } from "./labels";
import type { Point } from "./layout";

export interface Viewport {
  middle: Point;
  /** 1 shows the whole picture. */
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

export const largest = 16;
/** Pixels for a unit of the picture, where there is room. */
const scale = 1.3;

export const whole = (box: Box): Viewport => ({ middle: { x: box.x + box.width / 2, y: box.y + box.height / 2 }, zoom: 1 });

/** Pixels for a unit of the picture. */
export const pixels = (box: Box, size: Size, zoom: number): number => zoom * Math.min(scale, size.width / box.width, size.height / box.height);

/** What is seen of the picture, in its units. */
export function seen({ middle, zoom }: Viewport, box: Box, size: Size): Box {
  const s = pixels(box, size, zoom);
  return { x: middle.x - size.width / s / 2, y: middle.y - size.height / s / 2, width: size.width / s, height: size.height / s };
}

/** Enlarges so that what is at a point stays there. */
export function zoomed(v: Viewport, box: Box, by: number, at: Point = v.middle): Viewport {
  const zoom = Math.min(largest, Math.max(1, v.zoom * by));
  const keep = v.zoom / zoom;
  return within({ zoom, middle: { x: at.x + (v.middle.x - at.x) * keep, y: at.y + (v.middle.y - at.y) * keep } }, box);
}

export const moved = (v: Viewport, box: Box, x: number, y: number): Viewport => within({ ...v, middle: { x: v.middle.x + x, y: v.middle.y + y } }, box);

/** So that a point is seen: as it is, if it is, else with the point in the middle. */
export function showing(v: Viewport, box: Box, size: Size, at: Point): Viewport {
  const s = seen(v, box, size);
  const inside = at.x >= s.x && at.x <= s.x + s.width && at.y >= s.y && at.y <= s.y + s.height;
  return inside ? v : within({ ...v, middle: at }, box);
}

/** The picture never leaves the view, and the whole picture stands in its middle. */
function within(v: Viewport, box: Box): Viewport {
  if (v.zoom <= 1) return whole(box);
  const clamp = (value: number, from: number, length: number): number => Math.min(from + length, Math.max(from, value));
  return { ...v, middle: { x: clamp(v.middle.x, box.x, box.width), y: clamp(v.middle.y, box.y, box.height) } };
}
