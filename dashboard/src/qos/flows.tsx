// Critical flows: what was asked for, and where each is placed.

import { step } from "../api/client";
import type { Critical, CriticalFlow } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { routeOf } from "../topology/route";
import { bitRate, byteCount } from "../ui/format";
import { Notes } from "../ui/notes";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { FlowForm } from "./flowform";
import { matchWords } from "./match";
import { PathButton } from "./pathbutton";
import { useCurrent, useShow } from "./show";
import { useRequests } from "../ui/userequests";

const definitionColumns = ["Name", "#Rate", "Packets", "Release"];
const flowColumns = ["Flow", "Of", "State", "#Promised", "#Sends", "#Sent", "Path"];

export function Flows() {
  const { live } = useWorld();
  const requests = useRequests();
  const { critical, flows } = live;
  useCurrent("flow ", flows.value, (id) => {
    const hops = flows.value.find((f) => f.id === id)?.path;
    return hops && routeOf([hops]);
  });
  return (
    <Panel
      id="flows" title="Critical flows" problem={critical.problem ?? flows.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Request a critical flow</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <Paged
        caption="What is critical" columns={definitionColumns} items={critical.value} none={critical.at ? "No traffic is critical." : "Asking the controller."}
        row={(c) => <Definition key={c.name} of={c} released={requests.done} />}
      />
      {critical.value.length > 0 && (
        <Paged
          caption="Flows of it; choose a path to keep it in the picture" columns={flowColumns} items={flows.value}
          none="No packet of them has been seen." row={(f) => <FlowRow key={f.id} of={f} />}
        />
      )}
      {requests.open && <FlowForm done={requests.done} cancel={requests.toggle} />}
    </Panel>
  );
}

function Definition({ of: c, released }: { of: Critical; released(message: string): void }) {
  return (
    <tr>
      <th scope="row">{c.name}</th>
      <td class="number">{c.rate}</td>
      <td>{matchWords(c.match)}<Notes of={c.notes} /></td>
      <td><Release what={`critical flow ${c.name}`} path={`/qos/critical/${step(c.name)}`} done={released} /></td>
    </tr>
  );
}

function FlowRow({ of: f }: { of: CriticalFlow }) {
  const names = useNames();
  const paths = f.path && f.path.length > 0 ? [f.path] : [];
  const show = useShow(`flow ${f.id}`, routeOf(paths));
  return (
    <tr class={show.shown ? "shown" : ""} {...show.row}>
      <th scope="row">{f.flow}</th>
      <td>{f.definition}</td>
      <td class={{ accepted: "state-good", oversubscribed: "state-bad", placing: "soft", "best-effort": "state-bad" }[f.state]}>
        {f.state}{f.reason ? `: ${names.said(f.reason)}` : ""}
        {f.moves > 0 && <div class="soft">moved {f.moves} times</div>}
      </td>
      <td class="number">{f.state === "accepted" || f.state === "oversubscribed" ? bitRate(f.rate_bits_per_second) : "nothing"}</td>
      <td class="number">{bitRate(f.sent_bits_per_second)}</td>
      <td class="number">{byteCount(f.bytes)}</td>
      <td><PathButton paths={paths} show={show} /></td>
    </tr>
  );
}
