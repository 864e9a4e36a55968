// The devices that are registered or were learned.

import type { Device, Spot } from "../api/types";
import type { Names } from "../names/said";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { relative } from "../ui/when";

const columns = ["Device", "Class", "Address", "Where", "Access", "Second place", "#Rules", "Moves"];

interface Props {
  devices: Resource<Device[]>;
  /** The device whose moves are shown; empty for those of all. */
  chosen: string;
  choose(id: string): void;
}

export function DeviceTable({ devices, chosen, choose }: Props) {
  const names = useNames();
  return (
    <Panel id="devices" title="Devices" problem={devices.problem}>
      <Paged caption="Devices, and where they are" columns={columns} items={devices.value} none={devices.at ? "No device is known." : "Asking the controller."} row={(d) => (
        <tr key={d.id} class={d.id === chosen ? "shown" : ""}>
          <th scope="row">{d.id}{d.home && <div class="soft">of {d.home}</div>}</th>
          <td>{d.class}<div class="soft">{d.policy}</div></td>
          <td>{d.ip ?? "none"}</td>
          <td>
            {d.at ? spotWords(d.at, names) : <span class="soft">not attached</span>}
            {d.at && d.since && <div class="soft">since {relative(d.since).replace(/ ago$/, "")}</div>}
            {d.path && d.path.length > 0 && <div class="soft">{names.way(d.path)}</div>}
            {d.error && <div class="state-bad">{cut(names.said(d.error))}</div>}
          </td>
          <td>{d.at ? accessOf(d) : ""}</td>
          <td>{d.second ? <>{spotWords(d.second, names)}<div class="soft">{d.prepared ? "prepared" : "just left"}</div></> : "none"}</td>
          <td class="number">{d.rules}</td>
          <td><button type="button" aria-label={`Moves of ${d.id}`} aria-pressed={d.id === chosen} onClick={() => choose(d.id === chosen ? "" : d.id)}>Moves</button></td>
        </tr>
      )} />
    </Panel>
  );
}

export const spotWords = (s: Spot, names: Names): string => (s.peer ? `domain ${s.peer}` : names.said(s.port));

/**
 * By which of its interfaces a device is attached. A device's first address is that of
 * its virtual interface if it has a daemon, and of its only interface if it has none.
 */
export function accessOf(d: Pick<Device, "at" | "macs">): string {
  const mac = d.at?.mac;
  if (!mac) return "not known";
  const n = d.macs.indexOf(mac);
  return n < 0 || d.macs.length === 1 ? mac : `interface ${n} of ${d.macs.length - 1} (${mac})`;
}
