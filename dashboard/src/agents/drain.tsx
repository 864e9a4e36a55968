// Drains an agent, or lets it take on more again: of whichever service it is.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import { asProblem } from "../api/problem";
import type { Agent } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";

/** What can be drained. */
type Drainable = Pick<Agent, "name" | "draining">;

interface Drains {
  /** What they take, as in "sessions". */
  what: string;
  done: string;
  refused: string;
  drain(a: Drainable): Promise<void>;
  /** Says no longer what was done last. */
  forget(): void;
}

/** path is that of the agents in the API. */
export function useDrains(path: string, what: string, refresh: () => void): Drains {
  const { client } = useWorld();
  const names = useNames();
  const [done, setDone] = useState("");
  const [refused, setRefused] = useState("");
  const forget = (): void => {
    setDone("");
    setRefused("");
  };
  const drain = async (a: Drainable): Promise<void> => {
    forget();
    try {
      await client.post(`${path}/${step(a.name)}/drain`, { on: !a.draining });
      setDone(a.draining ? `${a.name} takes new ${what} again.` : `${a.name} takes no new ${what}.`);
    } catch (error) {
      setRefused(`${a.name}: ${names.said(asProblem(error).message)}.`);
    }
    refresh();
  };
  return { what, done, refused, drain, forget };
}

/** What became of the last request. */
export const Drained = ({ of: { done, refused } }: { of: Drains }) => (
  <>
    <p class="notice" role="status">{done}</p>
    <p class="error" role="alert">{refused}</p>
  </>
);

export const DrainButton = ({ of: a, drains: { what, drain } }: { of: Drainable; drains: Drains }) => (
  <button type="button" aria-label={a.draining ? `Resume: let ${a.name} take new ${what}` : `Drain ${a.name}`} onClick={() => void drain(a)}>{a.draining ? "Resume" : "Drain"}</button>
);
