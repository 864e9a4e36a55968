// The event stream against a server that breaks it off.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { Client } from "../src/api/client";
import { follow } from "../src/api/follow";
import type { Message } from "../src/api/sse";

let server: Server;
let answer: (request: IncomingMessage, response: ServerResponse) => void;
let seen: IncomingMessage[];

beforeEach(async () => {
  seen = [];
  server = createServer((request, response) => {
    seen.push(request);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const real = globalThis.fetch;
  vi.stubGlobal("fetch", (path: string, init: RequestInit) => real(base + path, init));
});

afterEach(() => {
  vi.unstubAllGlobals();
  server.closeAllConnections();
  server.close();
});

const stream = (response: ServerResponse, text: string): void => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(text);
};

test("a stream that breaks is taken up after the last event, with the token in a header only", async () => {
  const stop = new AbortController();
  const messages: Message[] = [];
  const states: boolean[] = [];
  answer = (_, response) => {
    if (seen.length === 1) {
      stream(response, "id: 41\nevent: a.b\ndata: {}\n\n");
      setImmediate(() => response.destroy());
    } else stream(response, "id: 42\nevent: a.c\ndata: {}\n\n");
  };
  const client = new Client({ token: () => "secret", refused: () => undefined });
  await follow(client, {
    connected: (yes) => states.push(yes),
    message: (m) => {
      messages.push(m);
      if (m.id === "42") stop.abort();
    },
  }, stop.signal);
  expect(messages.map((m) => m.id)).toEqual(["41", "42"]);
  expect(states).toEqual([true, false, true]);
  expect(seen.map((r) => r.url)).toEqual(["/api/v1/events?after=0", "/api/v1/events"]);
  expect(seen.map((r) => r.headers.authorization)).toEqual(["Bearer secret", "Bearer secret"]);
  expect(seen.map((r) => r.headers["last-event-id"])).toEqual([undefined, "41"]);
});

test("a refused token ends it and is reported once", async () => {
  answer = (_, response) => {
    response.writeHead(401, { "Content-Type": "application/problem+json" });
    response.end('{"detail":"no credentials"}');
  };
  const refused = vi.fn();
  await follow(new Client({ token: () => "", refused }), { connected: () => undefined, message: () => undefined }, new AbortController().signal);
  expect(refused).toHaveBeenCalledTimes(1);
  expect(seen).toHaveLength(1);
  expect(seen[0]!.headers.authorization).toBeUndefined();
});
