// MPTCP connections with further subflows, each of which has a path of its own.

import { useMemo } from "preact/hooks";

import type { Subflow } from "../api/types";
import { useList } from "../state/usewatched";
import { bitRate, byteCount, several } from "../ui/format";
import { Head } from "../ui/head";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { connectionsOf, listed, routeAmong, routeOfConnection, totals, type Connection } from "./connections";
import { PathButton } from "./pathbutton";
import { useCurrent, useShow } from "./show";

const columns = ["Connection", "#Further subflows", "#Carries", "#Carried", "Paths"];
const subflowColumns = ["Line", "Subflow", "#Carries", "#Carried", "Path"];

export function Subflows() {
  // Not after each event: thousands of subflows may begin at once.
  const subflows = useList<Subflow>("/qos/subflows", 2_000);
  const connections = useMemo(() => connectionsOf(subflows.value), [subflows.value]);
  useCurrent("connection ", connections, (id) => routeAmong(connections, id));
  return (
    <Panel id="subflows" title="Connections with further subflows" problem={subflows.problem}>
      <Paged
        caption="Connections of Multipath TCP; choose paths to keep them in the picture" columns={columns} items={connections}
        none={subflows.at ? "No further subflow of a connection has been placed." : "Asking the controller."}
        row={(c) => <ConnectionRow key={c.id} of={c} />}
      />
    </Panel>
  );
}

const pathsOf = (subflows: Subflow[]) => subflows.flatMap((s) => (s.path && s.path.length > 0 ? [s.path] : []));

function ConnectionRow({ of: c }: { of: Connection }) {
  const show = useShow(`connection ${c.id}`, routeOfConnection(c));
  const shown = c.subflows.slice(0, listed), sum = totals(c);
  return (
    <>
      <tr class={show.shown ? "shown" : ""} {...show.row}>
        <th scope="row">{c.id}</th>
        <td class="number">{c.subflows[0]?.plain ? "plain TCP" : c.subflows.length}</td>
        <td class="number">{bitRate(sum.rate)}</td>
        <td class="number">{byteCount(sum.bytes)}</td>
        <td><PathButton paths={pathsOf(shown)} show={show} /></td>
      </tr>
      <tr>
        <td class="inner" colSpan={columns.length}>
          <table aria-label={`Subflows of ${c.id}`}>
            <Head columns={subflowColumns} />
            <tbody>{shown.map((s, kind) => <SubflowRow key={s.id} of={s} connection={c} kind={kind} />)}</tbody>
          </table>
          {c.subflows.length > listed && <p class="soft">And {several(c.subflows.length - listed, "subflow")} more, not drawn.</p>}
        </td>
      </tr>
    </>
  );
}

function SubflowRow({ of: s, connection, kind }: { of: Subflow; connection: Connection; kind: number }) {
  const show = useShow(`connection ${connection.id}/${s.id}`, routeOfConnection(connection, s.id));
  return (
    <tr class={show.shown ? "shown" : ""} {...show.row}>
      <td>{kind + 1}<svg class="sample" viewBox="0 0 40 8" aria-hidden="true"><line class={`strand-${kind}`} x1="0" y1="4" x2="40" y2="4" /></svg></td>
      <th scope="row">{s.flow}{s.moves > 0 && <div class="soft">moved {several(s.moves, "time")}</div>}</th>
      <td class="number">{bitRate(s.bits_per_second)}{s.reverse && <div class="soft">in reverse</div>}</td>
      <td class="number">{byteCount(s.bytes)}</td>
      <td><PathButton paths={pathsOf([s])} show={show} /></td>
    </tr>
  );
}
