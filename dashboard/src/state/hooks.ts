// How components read what changes outside of them.

import { createContext } from "preact";
import { useContext, useEffect, useReducer } from "preact/hooks";

import type { Client } from "../api/client";
import type { Live } from "./live";
import type { Session } from "./session";

export interface World {
  client: Client;
  live: Live;
  session: Session;
}

export const WorldContext = createContext<World | undefined>(undefined);

export function useWorld(): World {
  const world = useContext(WorldContext);
  if (!world) throw new Error("a component stands outside of the page");
  return world;
}

/** Draws the component again whenever the source says that it has changed. */
export function useChanges(source: { subscribe(listener: () => void): () => void }): void {
  const [, redraw] = useReducer((n: number, _: void) => n + 1, 0);
  useEffect(() => source.subscribe(() => redraw()), [source]);
}
