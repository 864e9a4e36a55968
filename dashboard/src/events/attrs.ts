// What an event tells, read without trust in its shape: another version of the
// controller may tell less, or something else.

export type Attrs = Record<string, unknown>;

export const attrsOf = (value: unknown): Attrs => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Attrs) : {});

/** A value as text; empty if it is not there. */
export function text(attrs: Attrs, name: string): string {
  const value = attrs[name];
  return typeof value === "string" ? value : typeof value === "number" || typeof value === "boolean" ? String(value) : "";
}

export const number = (attrs: Attrs, name: string): number => (typeof attrs[name] === "number" ? attrs[name] : 0);

/** What follows a sentence because it gives the reason; empty if there is none. */
export const because = (reason: string): string => (reason ? `: ${reason}` : "");
