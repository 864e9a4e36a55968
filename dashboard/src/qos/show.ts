// Which path the picture shows: the one under the pointer or the focus, else the
// one that was chosen.

import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { Route } from "../topology/route";

export interface Shows {
  id: string;
  route: Route;
}

export interface Showing {
  hovered?: Shows;
  selected?: Shows;
}

export const Shown = createContext<{ showing: Showing; setShowing(s: Showing): void }>({ showing: {}, setShowing: () => undefined });

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
