// MobilityFirst: storage nodes, compute nodes and caches, what they keep, and the functions that they run.

import type { ComponentChildren } from "preact";

import { DrainButton, Drained, useDrains } from "../agents/drain";
import type { Custody, CustodyList, NameFunction, NameNode } from "../api/types";
import { useNames } from "../names/usenames";
import { useList, useWatched } from "../state/usewatched";
import { durationWords } from "../ui/duration";
import { byteCount, count, percent } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { clock, relative } from "../ui/when";
import { doing, shortName, standing } from "./words";

const nodesPath = "/mobilityfirst/nodes";
const nodeColumns = ["Node", "State", "Name", "Where it is", "What it does", "#Load", "New paths"];
const custodyColumns = ["For", "From", "At node", "#Chunks", "#Bytes", "The oldest came", "The first is over"];
const functionColumns = ["Function", "Name", "Node", "#Called", "#Failed", "#Running", "#Queued", "#Processor time"];

export function Nodes() {
  const nodes = useList<NameNode>(nodesPath, 3_000, "mobilityfirst.node");
  const drains = useDrains(nodesPath, "paths", () => void nodes.refresh());
  return (
    <Panel id="mf-nodes" title="Nodes" problem={nodes.problem}>
      <Drained of={drains} />
      <Paged
        caption="Storage nodes, compute nodes and caches that are declared" columns={nodeColumns} items={nodes.value}
        none={nodes.at ? "No node is declared." : "Asking the controller."}
        row={(n) => <NodeRow key={n.name} of={n}><DrainButton of={n} drains={drains} /></NodeRow>}
      />
    </Panel>
  );
}

function NodeRow({ of: n, children }: { of: NameNode; children: ComponentChildren }) {
  const names = useNames();
  const { said, good } = standing(n);
  return (
    <tr>
      <th scope="row">{n.name}<div class="soft">{n.kind}</div></th>
      <td>
        <span class={good ? "state-good" : "state-bad"}>{said}</span>
        {n.state !== "up" && n.last_seen && <div class="soft">last heard {relative(n.last_seen)}</div>}
        {n.error && <div class="state-bad">{cut(names.said(n.error))}</div>}
      </td>
      <td title={n.guid}>{n.guid ? shortName(n.guid) : "–"}</td>
      <td>{n.places.map((at) => <div key={at.port + at.mac}>{names.said(at.port)} <span class="soft">{at.mac}</span></div>)}</td>
      <td>{doing(n)}</td>
      <td class="number">{percent(n.load)}</td>
      <td>{children}</td>
    </tr>
  );
}

const none: CustodyList = { chunks: [], missing: [] };

export function ChunksInCustody() {
  const kept = useWatched<CustodyList>("custody", none, (client) => client.get<CustodyList>("/mobilityfirst/custody?limit=100"), 5_000);
  const names = useNames();
  return (
    <Panel id="mf-custody" title="Chunks in custody" problem={kept.problem}>
      {kept.value.missing.slice(0, 5).map((m) => <p key={m} class="state-bad">Not in the list: {cut(names.said(m))}</p>)}
      <Paged
        caption="Chunks that storage nodes keep: the first hundred of what there is" columns={custodyColumns} items={kept.value.chunks}
        none={kept.at ? "Storage nodes keep nothing." : "Asking the controller."}
        row={(c) => <CustodyRow key={c.node + c.destination + c.source} of={c} />}
      />
    </Panel>
  );
}

const CustodyRow = ({ of: c }: { of: Custody }) => (
  <tr>
    <th scope="row" title={c.destination}>{shortName(c.destination)}</th>
    <td title={c.source}>{shortName(c.source)}</td>
    <td>{c.node}</td>
    <td class="number">{count(c.chunks)}</td>
    <td class="number">{byteCount(c.bytes)}</td>
    <td>{relative(c.oldest)}</td>
    <td>{clock(c.deadline)}</td>
  </tr>
);

export function Functions() {
  const functions = useList<NameFunction>("/mobilityfirst/functions", 3_000);
  return (
    <Panel id="mf-functions" title="Functions" problem={functions.problem}>
      <Paged
        caption="Functions that compute nodes run for chunks on their way" columns={functionColumns} items={functions.value}
        none={functions.at ? "No compute node is declared." : "Asking the controller."}
        row={(f) => (
          <tr key={f.guid + f.node}>
            <th scope="row">{f.function}{f.builtin && <div class="soft">built in</div>}</th>
            <td title={f.guid}>{f.guid ? shortName(f.guid) : "–"}</td>
            <td>{f.node}</td>
            <td class="number">{count(f.called)}</td>
            <td class="number">{count(f.failed)}</td>
            <td class="number">{f.running} of {f.workers}</td>
            <td class="number">{count(f.queued)}</td>
            <td class="number">{durationWords(f.cpu_time)}</td>
          </tr>
        )}
      />
    </Panel>
  );
}
