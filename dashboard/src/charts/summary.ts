// A line of a chart in figures.

export interface Summary {
  now: number | undefined;
  lowest: number | undefined;
  mean: number | undefined;
  highest: number | undefined;
}

/** What is not known counts for nothing; now is the last value, if that is known. */
export function summary(values: readonly (number | null)[]): Summary {
  const known = values.filter((v) => v !== null);
  if (known.length === 0) return { now: undefined, lowest: undefined, mean: undefined, highest: undefined };
  return {
    now: values[values.length - 1] ?? undefined,
    lowest: known.reduce((a, b) => Math.min(a, b)),
    mean: known.reduce((a, b) => a + b, 0) / known.length,
    highest: known.reduce((a, b) => Math.max(a, b)),
  };
}
