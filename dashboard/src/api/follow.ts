// Follows the event stream, and takes it up again where it broke off. (The
// browser's EventSource cannot send a token in a header.)

import type { Client } from "./client";
import { Problem } from "./problem";
import { Parser, type Message } from "./sse";

/** The server sends something at least every ten seconds. */
const silence = 25_000;
const firstWait = 500;
const longestWait = 10_000;

export interface Follower {
  /** Something happened. */
  message(m: Message): void;
  /** The stream is there, or is not. */
  connected(yes: boolean): void;
}

/** Runs until the signal, or until the controller refuses the credentials. */
export async function follow(client: Client, follower: Follower, signal: AbortSignal): Promise<void> {
  let last: string | undefined;
  let wait = firstWait;
  while (!signal.aborted) {
    try {
      await once(client, last, signal, {
        connected: (yes) => {
          wait = firstWait;
          follower.connected(yes);
        },
        message: (m) => {
          last = m.id ?? last;
          follower.message(m);
        },
      });
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) return;
    }
    if (signal.aborted) return;
    follower.connected(false);
    await pause(wait, signal);
    wait = Math.min(wait * 2, longestWait);
  }
}

/** Reads one stream to its end. */
async function once(client: Client, last: string | undefined, signal: AbortSignal, follower: Follower): Promise<void> {
  const stop = new AbortController();
  let watch: ReturnType<typeof setTimeout> | undefined;
  const alive = (): void => {
    clearTimeout(watch);
    watch = setTimeout(() => stop.abort(), silence);
  };
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (last !== undefined) headers["Last-Event-ID"] = last;
  alive();
  try {
    // What the controller remembers of before this page was opened comes first.
    const answer = await client.open(last === undefined ? "/events?after=0" : "/events", headers, AbortSignal.any([signal, stop.signal]));
    follower.connected(true);
    const parser = new Parser();
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      for (const m of parser.push(value)) follower.message(m);
    }
  } finally {
    clearTimeout(watch);
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal.addEventListener("abort", end);
  });
}
