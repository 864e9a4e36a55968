// The names of the switches that are known now.

import { useMemo } from "preact/hooks";

import { useWorld } from "../state/hooks";
import { Names } from "./said";

export function useNames(): Names {
  const { live } = useWorld();
  const switches = live.switches.value;
  return useMemo(() => new Names(new Map(switches.map((s) => [s.dpid, s.name ?? ""]))), [switches]);
}
