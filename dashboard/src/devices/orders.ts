// What an operator has devices do, and how the forms ask for it.

import type { BusEvent } from "../api/types";
import { attrsOf, because, text } from "../events/attrs";
import { word, type Text } from "../ui/texts";

export type Act = "move" | "prepare";

interface Form {
  title(device: string): string;
  verb: string;
  /** What is chosen where no port is. */
  anywhere: string;
  /** What is chosen where no interface is. */
  anyhow: string;
  texts: Text[];
  /** What the texts say at first. */
  given: Record<string, string>;
}

const why: Text = { field: "why", label: "Reason", hint: "that the device is told; empty: none", optional: true, read: word };
const hold: Text = { field: "hold", label: "Stays there for", hint: "whatever its own policy says, as in 30s; empty: the policy decides at once", optional: true, read: word };
const timeout: Text = { field: "timeout", label: "Kept for", hint: "if the device does not come, 100ms to 10m; empty: as configured", optional: true, read: word };

export const forms: Record<Act, Form> = {
  move: {
    title: (device) => `Move ${device}`, verb: "Move", texts: [hold, why], given: { hold: "10m" },
    anywhere: "wherever the interface is", anyhow: "the one in use at a chosen port, else the next",
  },
  prepare: {
    title: (device) => `Prepare a place for ${device}`, verb: "Prepare", texts: [timeout], given: {},
    anywhere: "choose a switch", anyhow: "the one in use",
  },
};

/** What has become of an order, from the events that have come; empty while nothing has. */
export function outcome(order: number, events: readonly BusEvent[]): { done: boolean; words: string } | undefined {
  const report = events.map((e) => ({ kind: e.kind, attrs: attrsOf(e.attrs) })).find((e) => e.kind === "handover.device.reported" && e.attrs["order"] === order);
  if (!report) return undefined;
  const { attrs } = report;
  const device = text(attrs, "device");
  return attrs["done"] === true ? { done: true, words: `${device} has done so.` } : { done: false, words: `${device} has not done so${because(text(attrs, "text"))}.` };
}
