// How loaded a link is: the colour of its line, and the words beside it.

import type { Link } from "../api/types";

export const levels = [
  { below: 0.25, name: "below 25 %" },
  { below: 0.5, name: "25 to 50 %" },
  { below: 0.75, name: "50 to 75 %" },
  { below: 0.9, name: "75 to 90 %" },
  { below: Infinity, name: "90 % and more" },
] as const;

/** Used share of a link's capacity; undefined where the capacity is not known. */
export function utilisation(link: Link | undefined): number | undefined {
  if (!link?.capacity_bits_per_second) return undefined;
  return link.used_bits_per_second / link.capacity_bits_per_second;
}

/** The CSS class of a level: load-0 to load-4, or load-unknown. */
export function loadClass(share: number | undefined): string {
  if (share === undefined) return "load-unknown";
  return `load-${levels.findIndex((l) => share < l.below)}`;
}
