// Figures for people: three digits, and units that fit.

const none = "–";

function digits(v: number): string {
  const abs = Math.abs(v);
  if (abs === 0) return "0";
  if (abs >= 100) return v.toFixed(0);
  if (abs >= 10) return v.toFixed(1);
  return v.toFixed(2);
}

/** Scales by thousands: 1234567 is 1.23 M. */
function scaled(v: number, unit: string): string {
  const prefixes = ["", "k", "M", "G", "T"];
  let i = 0;
  while (Math.abs(v) >= 999.5 && i < prefixes.length - 1) {
    v /= 1000;
    i++;
  }
  const text = i === 0 ? String(Math.round(v * 10) / 10) : digits(v);
  return `${text} ${prefixes[i]}${unit}`.trimEnd();
}

export const bitRate = (v: number | undefined): string => (v === undefined ? none : scaled(v, "bit/s"));
export const byteCount = (v: number | undefined): string => (v === undefined ? none : scaled(v, "B"));
export const count = (v: number | undefined): string => (v === undefined ? none : scaled(v, "").replace(" ", "\u202f"));

export const milliseconds = (v: number | undefined): string => (v === undefined ? none : `${digits(v)} ms`);

/** A latency with its jitter: 1.39 ± 0.05 ms. */
export const spread = (v: number, by: number): string => `${digits(v)} ± ${digits(by)} ms`;

export const percent = (share: number | undefined): string => {
  if (share === undefined) return none;
  const v = share * 100;
  return v > 0 && v < 0.01 ? "< 0.01 %" : `${v >= 10 ? v.toFixed(0) : digits(v)} %`;
};

/** How many there are of something: 1 link, 2 links. */
export const several = (n: number, one: string): string => `${n} ${one}${n === 1 ? "" : "s"}`;

/** A number where the text is one, else the text: the server says what is wrong. */
export function parseNumber(text: string): number | string {
  const trimmed = text.trim();
  return /^-?[0-9]+(\.[0-9]+)?$/.test(trimmed) ? Number(trimmed) : trimmed;
}
