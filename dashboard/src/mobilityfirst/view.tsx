// MobilityFirst: where names are, the paths between them that switches have labels for, and nodes.

import type { Name, NamePath } from "../api/types";
import { useNames } from "../names/usenames";
import { useList } from "../state/usewatched";
import { durationWords } from "../ui/duration";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { ChunksInCustody, Functions, Nodes } from "./nodes";
import { endsOf, shortName, wayOf } from "./words";

const nameColumns = ["Name", "Where it is", "#Paths"];
const pathColumns = ["Between", "And", "By way of", "#Lease"];

export function MobilityFirst() {
  // Events tell of each name that comes and moves: they may be many, and a list of many long.
  const names = useList<Name>("/mobilityfirst/names", 3_000);
  const paths = useList<NamePath>("/mobilityfirst/paths", 3_000);
  const of = new Map<string, number>();
  for (const p of paths.value) for (const e of p.ends) of.set(e.name, (of.get(e.name) ?? 0) + 1);
  return (
    <>
      <Panel id="mf-names" title="Names" problem={names.problem}>
        <Paged
          caption="Names that have said hello in the last 35 s" columns={nameColumns} items={names.value}
          none={names.at ? "No name has said hello." : "Asking the controller."}
          row={(n) => <NameRow key={n.name} of={n} paths={of.get(n.name) ?? 0} />}
        />
      </Panel>
      <Panel id="mf-paths" title="Paths between names" problem={paths.problem}>
        <Paged
          caption="Paths for which switches have labels" columns={pathColumns} items={paths.value}
          none={paths.at ? "No name sends to another." : "Asking the controller."}
          row={(p) => <PathRow key={p.id} of={p} />}
        />
      </Panel>
      <Nodes />
      <ChunksInCustody />
      <Functions />
    </>
  );
}

function NameRow({ of: n, paths }: { of: Name; paths: number }) {
  const names = useNames();
  return (
    <tr>
      <th scope="row" title={n.name}>{shortName(n.name)}</th>
      <td>{n.places.map((at) => <div key={at.port + at.mac}>{names.said(at.port)} <span class="soft">{at.mac}</span></div>)}</td>
      <td class="number">{paths}</td>
    </tr>
  );
}

function PathRow({ of: p }: { of: NamePath }) {
  const names = useNames();
  const [a, b] = endsOf(p);
  const way = wayOf(p);
  return (
    <tr>
      {[a, b].map((e, i) => (
        <td key={i} title={e?.name}>{e ? shortName(e.name) : "–"}{e && <div class="soft">{names.said(e.port)}, label {e.label}</div>}</td>
      ))}
      <td>{names.said(way.join(", "))}<div class="soft">{way.length} {way.length === 1 ? "switch" : "switches"}</div></td>
      <td class="number">{durationWords(p.lease)}</td>
    </tr>
  );
}
