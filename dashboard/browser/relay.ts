// Stands between Chromium and the controller, so that a test can cut the line.

import { connect, createServer, type AddressInfo, type Socket } from "node:net";

export interface Relay {
  url: string;
  /** Breaks all connections, and refuses new ones until resume. */
  cut(): void;
  resume(): void;
  close(): Promise<void>;
}

export async function relay(to: string): Promise<Relay> {
  const { hostname, port } = new URL(to);
  const sockets = new Set<Socket>();
  let whole = true;
  const server = createServer((inside) => {
    if (!whole) {
      inside.destroy();
      return;
    }
    const outside = connect(Number(port), hostname);
    for (const [socket, other] of [[inside, outside], [outside, inside]] as const) {
      sockets.add(socket);
      socket.on("error", () => other.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        other.destroy();
      });
      socket.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = (): void => {
    whole = false;
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut,
    resume: () => {
      whole = true;
    },
    close: () => {
      cut();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
