// The fields that say where a device is to be: a switch, and one of its ports.

import { step } from "../api/client";
import type { Device, Port } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { useList } from "../state/usewatched";
import { described, Field } from "../ui/field";
import { accessesOf } from "./access";

export interface Chosen {
  switch: string;
  /** The port's number; empty while none is chosen. */
  port: string;
}

interface Props {
  device: Device;
  /** What is chosen where no switch is. */
  anywhere: string;
  chosen: Chosen;
  errors: string[] | undefined;
  choose(chosen: Chosen): void;
}

export function SpotFields({ chosen, errors, ...rest }: Props) {
  const { live } = useWorld();
  const names = useNames();
  const { anywhere, choose } = rest;
  const switches = [...live.switches.value].sort((x, y) => names.of(x.dpid).localeCompare(names.of(y.dpid), "en", { numeric: true }));
  const wrong = chosen.switch ? undefined : errors; // else the port's field says it
  return (
    <>
      <Field id="spot-switch" label="Switch" hint="that the device is to be at" errors={wrong}>
        <select {...described("spot-switch", wrong)} value={chosen.switch} onChange={(e) => choose({ switch: e.currentTarget.value, port: "" })}>
          <option value="">{anywhere}</option>
          {switches.map((s) => <option key={s.dpid} value={s.dpid}>{names.of(s.dpid)}</option>)}
        </select>
      </Field>
      {chosen.switch && <PortField key={chosen.switch} chosen={chosen} errors={errors} {...rest} />}
    </>
  );
}

function PortField({ device, chosen, errors, choose }: Props) {
  const names = useNames();
  const ports = useList<Port>(`/network/ports?switch=${step(chosen.switch)}`, 15_000, "network.port", "network.link");
  const problem = ports.problem && [`Not up to date: ${names.said(ports.problem.message)}.`];
  const wrong = errors ?? problem;
  return (
    <Field id="spot-port" label="Port" hint={ports.at ? "where no other switch is" : "Asking the controller."} errors={wrong}>
      <select {...described("spot-port", wrong)} value={chosen.port} onChange={(e) => choose({ ...chosen, port: e.currentTarget.value })}>
        <option value="">choose a port</option>
        {accessesOf(ports.value).map((p) => <option key={p.port} value={String(p.port)}>{portWords(p, device)}</option>)}
      </select>
    </Field>
  );
}

const portWords = (p: Port, { at }: Device): string =>
  `${p.port} (${p.name}${p.up ? "" : ", down"}${at?.port === `${p.switch}/${p.port}` ? ", where it is now" : ""})`;
