// The page's data: resources of the server, and the events that make them stale.

import type { Client } from "../api/client";
import { follow } from "../api/follow";
import { asProblem } from "../api/problem";
import type { Message } from "../api/sse";
import type { BusEvent, Class, ClassStats, Critical, CriticalFlow, Host, Link, Reservation, Status, Switch } from "../api/types";
import { Resource } from "./resource";

/** How long the page waits after an event for the ones that come with it. */
const settle = 150;
/** How many events the page keeps. */
export const remembered = 500;

export type Connection = "connecting" | "live" | "lost";

export class Live {
  connection: Connection = "connecting";
  events: BusEvent[] = [];

  readonly status: Resource<Status | undefined>;
  readonly switches: Resource<Switch[]>;
  readonly links: Resource<Link[]>;
  readonly hosts: Resource<Host[]>;
  readonly classes: Resource<Class[]>;
  readonly stats: Resource<Map<string, ClassStats>>;
  readonly critical: Resource<Critical[]>;
  readonly flows: Resource<CriticalFlow[]>;
  readonly reservations: Resource<Reservation[]>;

  private readonly core: Resource<unknown>[];
  private readonly qos: Resource<unknown>[];
  private readonly listeners = new Set<() => void>();
  private readonly stale = new Set<Resource<unknown>>();
  private stop: AbortController | undefined;
  private readonly timers = new Map<Resource<unknown>, number>();
  private readonly watched = new Set<Resource<unknown>>();
  private following = false;
  private settling = 0;

  constructor(private readonly client: Client) {
    const make = <T>(initial: T, fetch: () => Promise<T>, every: number, ...kinds: string[]): Resource<T> => new Resource(initial, fetch, every, kinds, () => this.changed());
    const list = <T>(path: string, every: number, ...kinds: string[]): Resource<T[]> => make<T[]>([], async () => (await client.get<T[] | null>(path)) ?? [], every, ...kinds);
    this.status = make<Status | undefined>(undefined, () => client.get<Status>("/status"), 60_000);
    this.switches = list("/network/switches", 15_000, "network.switch");
    this.links = list("/network/links", 2_000, "network.");
    this.hosts = list("/network/hosts", 15_000, "network.host", "network.switch", "network.port");
    this.classes = list("/qos/classes", 5_000, "qos.");
    this.stats = make(new Map<string, ClassStats>(), () => this.allStats(), 2_000, "qos.");
    this.critical = list("/qos/critical", 10_000, "qos.");
    this.flows = list("/qos/flows", 3_000, "qos.");
    this.reservations = list("/qos/reservations", 3_000, "qos.");
    this.core = [this.switches, this.links, this.hosts];
    this.qos = [this.classes, this.stats, this.critical, this.flows, this.reservations];
  }

  /** Begins to follow; what was followed before ends. */
  async start(): Promise<void> {
    this.end();
    const stop = new AbortController();
    this.stop = stop;
    await this.status.refresh();
    if (stop.signal.aborted) return;
    this.following = true;
    for (const r of this.served()) this.keep(r);
    this.refreshAll();
    await follow(this.client, { message: (m) => this.message(m), connected: (yes) => this.connected(yes) }, stop.signal);
  }

  end(): void {
    this.stop?.abort();
    this.following = false;
    for (const timer of this.timers.values()) clearInterval(timer);
    clearTimeout(this.settling);
    this.timers.clear();
    this.settling = 0;
    this.connection = "connecting";
  }

  /** Keeps what one view shows up to date, until the function that it returns is called. */
  watch(r: Resource<unknown>): () => void {
    this.watched.add(r);
    if (this.following) {
      this.keep(r);
      void r.refresh();
    }
    return () => {
      this.watched.delete(r);
      clearInterval(this.timers.get(r));
      this.timers.delete(r);
    };
  }

  /** A resource for watch. */
  resource<T>(initial: T, fetch: (client: Client) => Promise<T>, every: number, ...kinds: string[]): Resource<T> {
    return new Resource(initial, () => fetch(this.client), every, kinds, () => this.changed());
  }

  /** Whether the controller runs a service; undefined while that is not known. */
  runs(service: string): boolean | undefined {
    return this.status.value?.services?.includes(service);
  }

  refreshAll(): void {
    for (const r of this.served()) void r.refresh();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** What this controller has. */
  private served(): Resource<unknown>[] {
    return [...this.core, ...(this.runs("qos") ? this.qos : []), ...this.watched];
  }

  /** Fetches a resource from time to time, while somebody looks. */
  private keep(r: Resource<unknown>): void {
    this.timers.set(r, window.setInterval(() => {
      if (!document.hidden) void r.refresh();
    }, r.every));
  }

  private async allStats(): Promise<Map<string, ClassStats>> {
    const names = this.classes.value.map((c) => c.name);
    const answers = await Promise.allSettled(names.map((name) => this.client.get<ClassStats>(`/qos/classes/${encodeURIComponent(name)}/stats`)));
    const found = new Map<string, ClassStats>();
    answers.forEach((a, i) => {
      if (a.status === "fulfilled") found.set(names[i]!, a.value);
      else if (asProblem(a.reason).status !== 404) throw a.reason; // 404: released in the meantime
    });
    return found;
  }

  private connected(yes: boolean): void {
    const before = this.connection;
    this.connection = yes ? "live" : "lost";
    // Whatever happened while the stream was away is in the state, if not in the events.
    if (yes && before === "lost") {
      void this.status.refresh();
      this.refreshAll();
    }
    this.changed();
  }

  private message(m: Message): void {
    if (m.event === "missed") {
      this.refreshAll();
      return;
    }
    const event = JSON.parse(m.data) as BusEvent;
    this.events = [event, ...this.events].slice(0, remembered);
    for (const r of this.served()) if (r.concerns(event.kind)) this.stale.add(r);
    this.settling ||= window.setTimeout(() => this.refreshStale(), settle);
    this.changed();
  }

  private refreshStale(): void {
    this.settling = 0;
    for (const r of this.stale) void r.refresh();
    this.stale.clear();
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }
}
