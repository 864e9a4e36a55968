// Problem documents (RFC 9457) as the server sends them, and to which of a
// form's fields each of their errors belongs.

export interface Detail {
  message?: string;
  location?: string;
  value?: unknown;
}

export class Problem extends Error {
  override name = "Problem";

  constructor(
    readonly status: number,
    message: string,
    readonly details: Detail[] = [],
  ) {
    super(message);
  }

  /** The same problem in other words. */
  said(words: (text: string) => string): Problem {
    return new Problem(this.status, words(this.message), this.details.map((d) => (d.message === undefined ? d : { ...d, message: words(d.message) })));
  }
}

/** Makes a Problem of an answer that is not a success. */
export async function problemOf(answer: Response): Promise<Problem> {
  const fallback = `${answer.status} ${answer.statusText}`.trim();
  try {
    const body = (await answer.json()) as { detail?: string; title?: string; errors?: Detail[] | null };
    return new Problem(answer.status, body.detail || body.title || fallback, body.errors ?? []);
  } catch {
    return new Problem(answer.status, fallback);
  }
}

/** Whatever went wrong, as a Problem; status 0 means that there was no answer. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof DOMException && error.name === "TimeoutError") return new Problem(0, "the controller did not answer in time");
  return new Problem(0, "the controller cannot be reached");
}

export interface Assigned {
  /** Messages by field. */
  fields: Map<string, string[]>;
  /** Messages that belong to no field. */
  rest: string[];
}

/**
 * Gives each error of the problem to the field that it names, or to the nearest
 * one around it: "body.flows[0].ipv4_src" to flows[0].ipv4_src, flows[0], or flows.
 */
export function assign(problem: Problem | undefined, known: Iterable<string>): Assigned {
  const fields = new Map<string, string[]>();
  const rest: string[] = [];
  if (!problem) return { fields, rest };
  const names = new Set(known);
  for (const { location = "", message = problem.message } of problem.details) {
    const field = nearest(normal(location), names);
    if (field === undefined) rest.push(location && !location.startsWith("path.") ? `${location}: ${message}` : message); // the path is what the form is about
    else fields.set(field, [...(fields.get(field) ?? []), message]);
  }
  if (fields.size === 0 && rest.length === 0) rest.push(problem.message);
  return { fields, rest };
}

/** One way of writing a location: without "body.", indices in brackets. */
const normal = (location: string): string => location.replace(/^(body|path|query)\.?/, "").replace(/\.(\d+)(?=\.|$)/g, "[$1]");

function nearest(location: string, names: Set<string>): string | undefined {
  for (;;) {
    if (names.has(location)) return location;
    const around = location.replace(/(\.[^.[\]]+|\[[^\]]*\])$/, "");
    if (around === location) return undefined;
    location = around;
  }
}
