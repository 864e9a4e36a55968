// The devices that are registered or were learned, and the forms that move them.

import { step } from "../api/client";
import type { Device, Spot } from "../api/types";
import type { Names } from "../names/said";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import type { Resource } from "../state/resource";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { relative } from "../ui/when";
import { accessOf } from "./access";
import { outcome, type Act } from "./orders";
import { PlaceForm } from "./placeform";
import { useActs } from "./useacts";

const columns = ["Device", "Class", "Address", "Where", "Access", "Second place", "#Rules", "Moves", "Change"];
const takenBack = { verb: "Take back", past: "taken back", effect: "No packets of the device go there any more, until it moves there." };

interface Props {
  devices: Resource<Device[]>;
  /** The device whose moves are shown; empty for those of all. */
  chosen: string;
  choose(id: string): void;
  refresh(): void;
}

export function DeviceTable({ devices, chosen, choose, refresh }: Props) {
  const { live } = useWorld();
  const names = useNames();
  const acts = useActs();
  const done = (message: string, order?: number): void => {
    acts.done(message, order);
    refresh();
  };
  const { asked, told } = acts;
  const became = told.order === undefined ? undefined : outcome(told.order, live.events);
  const about = asked && devices.value.find((d) => d.id === asked.device);
  const opens = (d: Device, act: Act, label: string, words: string) => (
    <button type="button" aria-label={label} aria-expanded={acts.is(d.id, act)} onClick={(e) => acts.toggle(d.id, act, e.currentTarget)}>{words}</button>
  );
  return (
    <Panel id="devices" title="Devices" problem={devices.problem}>
      <p class="notice" role="status" ref={acts.notice} tabindex={-1}>{told.message}</p>
      <p class={became?.done === false ? "error" : "notice"} role="status" aria-label="What became of the order">{became && names.said(became.words)}</p>
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
          <td>
            <div class="actions">
              {opens(d, "move", `Move ${d.id}`, "Move")}
              {opens(d, "prepare", `Prepare a place for ${d.id}`, "Prepare")}
              {d.prepared && <Release what={`place prepared for ${d.id}`} path={`/handover/devices/${step(d.id)}/prepare`} words={takenBack} done={done} />}
            </div>
            {d.daemon ? "" : <div class="soft">no program of it listens</div>}
          </td>
        </tr>
      )} />
      {asked && about && <PlaceForm key={`${asked.device} ${asked.act}`} device={about} act={asked.act} done={done} cancel={acts.close} />}
    </Panel>
  );
}

export const spotWords = (s: Spot, names: Names): string => (s.peer ? `domain ${s.peer}` : names.said(s.port));
