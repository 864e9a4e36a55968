// What one view shows of the server, kept up to date while the view is there.

import { useEffect, useMemo } from "preact/hooks";

import type { Client } from "../api/client";
import { useWorld } from "./hooks";
import type { Resource } from "./resource";

/**
 * A resource that is fetched now, every so many milliseconds, and after events of
 * these kinds. It begins anew when the key changes.
 */
export function useWatched<T>(key: string, initial: T, fetch: (client: Client) => Promise<T>, every: number, ...kinds: string[]): Resource<T> {
  const { live } = useWorld();
  const resource = useMemo(() => live.resource(initial, fetch, every, ...kinds), [live, key]);
  useEffect(() => live.watch(resource), [live, resource]);
  return resource;
}

/** A list of the server as useWatched keeps it. */
export const useList = <T>(path: string, every: number, ...kinds: string[]): Resource<T[]> =>
  useWatched<T[]>(path, [], async (client) => (await client.get<T[] | null>(path)) ?? [], every, ...kinds);
