// Times for people.

import { secondsWords } from "./duration";

/** How long ago a time was: 12 s ago. */
export function relative(at: string, now = Date.now()): string {
  const seconds = Math.round((now - Date.parse(at)) / 1000);
  return seconds < 1 ? "now" : `${secondsWords(seconds).replace(/\.\d+ s$/, " s")} ago`;
}

/** The time of day, and the date if it is another day's. */
export function clock(at: string, now = new Date()): string {
  const time = new Date(at);
  const same = time.toDateString() === now.toDateString();
  return same ? time.toLocaleTimeString() : time.toLocaleString();
}
