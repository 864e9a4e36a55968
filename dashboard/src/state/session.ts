// The token: kept for this tab, for as long as it is open, and nowhere else.

const key = "sluice-token";

export class Session {
  private listeners = new Set<() => void>();
  /** The controller asked for a token since the last one was given. */
  private asked = false;

  constructor(private readonly storage: Storage) {}

  token(): string {
    return this.storage.getItem(key) ?? "";
  }

  /** True while a token is wanted and there is none that the controller takes. */
  wanted(): boolean {
    return this.asked;
  }

  logIn(token: string): void {
    this.storage.setItem(key, token.trim());
    this.asked = false;
    this.changed();
  }

  logOut(): void {
    this.storage.removeItem(key);
    this.asked = true;
    this.changed();
  }

  /** The controller did not take the token, or there was none. */
  refused(): void {
    this.storage.removeItem(key);
    if (this.asked) return;
    this.asked = true;
    this.changed();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }
}
