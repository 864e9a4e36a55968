// Critical flows: what was asked for, and where each is placed.

import { step } from "../api/client";
import type { Critical, Placement } from "../api/types";
import { useWorld } from "../state/hooks";
import { routeOf } from "../topology/route";
import { bitRate } from "../ui/format";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { FlowForm } from "./flowform";
import { matchWords } from "./match";
import { PathButton } from "./pathbutton";
import { useShow } from "./show";
import { useRequests } from "./userequests";

const definitionColumns = ["Name", "Rate", "Packets", "Release"];
const placementColumns = ["Flow", "Rate", "Packets", "State", "Path"];

export function Flows() {
  const { live } = useWorld();
  const requests = useRequests();
  const { critical, placements } = live;
  return (
    <Panel
      id="flows" title="Critical flows" problem={critical.problem ?? placements.problem}
      actions={<button type="button" aria-expanded={requests.open} onClick={requests.toggle}>Request a critical flow</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      {critical.value.length === 0 && <p class="soft">No flow is declared critical.</p>}
      {critical.value.length > 0 && (
        <div class="scroll">
          <table>
            <caption>Declared</caption>
            <Head columns={definitionColumns} />
            <tbody>{critical.value.map((c) => <Definition key={c.name} of={c} released={requests.done} />)}</tbody>
          </table>
          <table>
            <caption>Placed</caption>
            <Head columns={placementColumns} />
            <tbody>{placements.value.map((p) => <PlacementRow key={p.id} of={p} />)}</tbody>
          </table>
          {placements.value.length === 0 && <p class="soft">No packet of them has been seen.</p>}
        </div>
      )}
      {requests.open && <FlowForm done={requests.done} cancel={requests.toggle} />}
    </Panel>
  );
}

const Head = ({ columns }: { columns: string[] }) => <thead><tr>{columns.map((c) => <th key={c} scope="col">{c}</th>)}</tr></thead>;

function Definition({ of: c, released }: { of: Critical; released(message: string): void }) {
  return (
    <tr>
      <th scope="row">{c.name}</th>
      <td class="number">{bitRate(c.rate)}</td>
      <td>{matchWords(c.match)}</td>
      <td><Release what={`critical flow ${c.name}`} path={`/qos/critical/${step(c.name)}`} done={released} /></td>
    </tr>
  );
}

function PlacementRow({ of: p }: { of: Placement }) {
  const paths = p.hops.length > 0 ? [p.hops] : [];
  const show = useShow(`flow ${p.id}`, routeOf(paths));
  return (
    <tr class={show.shown ? "shown" : ""} {...show.row}>
      <th scope="row">{p.name}</th>
      <td class="number">{bitRate(p.rate)}</td>
      <td>{matchWords(p.match)}</td>
      <td class={p.accepted ? "state-good" : "state-bad"}>{p.accepted ? "accepted" : `best effort: ${p.reason ?? ""}`}</td>
      <td><PathButton paths={paths} show={show} /></td>
    </tr>
  );
}
