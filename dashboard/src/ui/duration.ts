// Durations as the controller writes them ("1m2.3s", "850µs"), for people.

const seconds: Record<string, number> = { h: 3600, m: 60, s: 1, ms: 1e-3, "µs": 1e-6, us: 1e-6, ns: 1e-9 };

/** A duration in seconds; undefined for what is none. */
export function parseDuration(text: string): number | undefined {
  if (!/^-?([0-9]+(\.[0-9]+)?(h|ms|m|s|µs|us|ns))+$/.test(text) && text !== "0") return undefined;
  const sum = [...text.matchAll(/([0-9]+(?:\.[0-9]+)?)(h|ms|m|s|µs|us|ns)/g)].reduce((total, [, n, unit]) => total + Number(n) * seconds[unit!]!, 0);
  return text.startsWith("-") ? -sum : sum;
}

/** Three digits and a unit: 2.10 ms, 1.25 s, 3 min 5 s. What is no duration stays as it is. */
export function durationWords(text: string): string {
  const s = parseDuration(text);
  return s === undefined ? text : secondsWords(s);
}

export function secondsWords(s: number): string {
  if (s < 0) return `−${secondsWords(-s)}`;
  if (s === 0) return "0 s";
  if (s < 0.9995) return `${three(s * 1000)} ms`;
  if (s < 59.95) return `${three(s)} s`;
  const whole = Math.round(s), minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const three = (v: number): string => v.toFixed(v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2);
