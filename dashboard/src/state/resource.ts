// One thing that the page shows and the server has: fetched again when an event
// says that it has changed, and from time to time, since measurements are no events.

import { asProblem, type Problem } from "../api/problem";

export class Resource<T> {
  value: T;
  problem: Problem | undefined;
  /** When the value was last confirmed; 0 for never. */
  at = 0;
  private running = false;
  private again = false;

  constructor(
    initial: T,
    private readonly fetch: () => Promise<T>,
    readonly every: number,
    private readonly kinds: string[],
    private readonly changed: () => void,
  ) {
    this.value = initial;
  }

  /** Fetches; while a fetch runs, at most one more is kept in mind. */
  async refresh(): Promise<void> {
    if (this.running) {
      this.again = true;
      return;
    }
    this.running = true;
    do {
      this.again = false;
      try {
        this.value = await this.fetch();
        this.problem = undefined;
        this.at = Date.now();
      } catch (error) {
        this.problem = asProblem(error);
      }
      this.changed();
    } while (this.again);
    this.running = false;
  }

  concerns(kind: string): boolean {
    return this.kinds.some((prefix) => kind.startsWith(prefix));
  }
}
