// Requests to the controller. The token goes in a header, never in a URL.

import { textOf } from "./bounded";
import { problemOf } from "./problem";

const prefix = "/api/v1";
const patience = 15_000; // milliseconds until a request is given up

export interface Credentials {
  /** The token, or "" while there is none. */
  token(): string;
  /** Called when the controller asks for a token, or for another one. */
  refused(): void;
}

export class Client {
  constructor(private readonly credentials: Credentials) {}

  get<T>(path: string): Promise<T> {
    return this.send<T>("GET", path);
  }

  post<T>(path: string, body: unknown): Promise<T> {
    return this.send<T>("POST", path, body);
  }

  delete(path: string): Promise<void> {
    return this.send<void>("DELETE", path);
  }

  /** Opens a stream; the caller reads the body and ends it by the signal. */
  async open(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    return this.checked(await fetch(prefix + path, { headers: { ...this.authorisation(), ...headers }, signal, cache: "no-store" }));
  }

  private async send<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers: Record<string, string> = { Accept: "application/json", ...this.authorisation() };
    const init: RequestInit = { method, headers, cache: "no-store", signal: AbortSignal.timeout(patience) };
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    const answer = await this.checked(await fetch(prefix + path, init));
    const text = await textOf(answer);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  private authorisation(): Record<string, string> {
    const token = this.credentials.token();
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  private async checked(answer: Response): Promise<Response> {
    if (answer.ok) return answer;
    if (answer.status === 401) this.credentials.refused();
    throw await problemOf(answer);
  }
}

/** One step of a path, escaped. */
export const step = (name: string): string => encodeURIComponent(name);
