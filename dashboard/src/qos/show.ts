// Which path the picture shows: the one under the pointer or the focus, else the
// one that was chosen.

import { createContext } from "preact";
import { useContext, useEffect } from "preact/hooks";

import type { Route } from "../topology/route";

export interface Shows {
  id: string;
  route: Route;
}

export interface Showing {
  hovered?: Shows;
  selected?: Shows;
}

interface Place {
  showing: Showing;
  setShowing(next: Showing | ((now: Showing) => Showing)): void;
}

export const Shown = createContext<Place>({ showing: {}, setShowing: () => undefined });

/** What a row and its button need to show a path. */
export function useShow(id: string, route: Route) {
  const { showing, setShowing } = useContext(Shown);
  const { hovered, selected } = showing;
  const hover = (): void => setShowing({ ...(selected && { selected }), hovered: { id, route } });
  const leave = (): void => setShowing(selected ? { selected } : {});
  const chosen = selected?.id === id;
  return {
    shown: chosen || hovered?.id === id,
    row: { onMouseEnter: hover, onMouseLeave: leave, onFocusCapture: hover, onBlurCapture: leave },
    button: { "aria-pressed": chosen, onClick: () => setShowing(chosen ? {} : { selected: { id, route } }) },
  };
}

/**
 * Keeps what is shown as it is now, of identifiers that begin so: route finds it by the
 * rest, and undefined is no longer shown. It is asked anew whenever the list changes.
 */
export function useCurrent(prefix: string, list: unknown, route: (rest: string) => Route | undefined): void {
  const { setShowing } = useContext(Shown);
  useEffect(() => setShowing((now) => current(now, prefix, route)), [list]);
}

/** What is shown, with the routes that are there now; the same object if none of it is of the prefix. */
export function current(showing: Showing, prefix: string, route: (rest: string) => Route | undefined): Showing {
  const { hovered, selected } = showing;
  if (![hovered, selected].some((s) => s?.id.startsWith(prefix))) return showing;
  const now = (s: Shows | undefined): Shows | undefined => {
    if (!s?.id.startsWith(prefix)) return s;
    const found = route(s.id.slice(prefix.length));
    return found && { id: s.id, route: found };
  };
  const over = now(hovered), kept = now(selected);
  return { ...(over && { hovered: over }), ...(kept && { selected: kept }) };
}
