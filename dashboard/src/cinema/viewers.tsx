// The viewers: by which gateway each watches what, and how its changes of channel went.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Viewer } from "../api/types";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { Field } from "../ui/field";
import { count, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { relative } from "../ui/when";
import { lossOf } from "./zaps";

const columns = ["Viewer", "Gateway", "Watches", "Came", "#Changes", "#Last zap", "#Packets", "#Lost", "Remove"];
/** Told apart by the beginning of its identifier: several may be at one address. */
const nameOf = (v: Viewer): string => [v.address, v.id.slice(0, 8)].filter(Boolean).join(" ");
const removed = { verb: "Remove", past: "removed", effect: "Nothing is copied to it any more: it sees a picture that stands still. It may come again." };

export function Viewers({ viewers, refresh }: { viewers: Resource<Viewer[]>; refresh(): void }) {
  const [wanted, setGateway] = useState("");
  const [message, setMessage] = useState("");
  const counts = new Map<string, number>();
  for (const v of viewers.value) counts.set(v.gateway, (counts.get(v.gateway) ?? 0) + 1);
  const gateway = counts.has(wanted) ? wanted : "";
  const shown = viewers.value.filter((v) => gateway === "" || v.gateway === gateway);
  const done = (text: string): void => {
    setMessage(text);
    refresh();
  };
  return (
    <Panel id="viewers" title="Viewers" problem={viewers.problem}>
      <p class="notice" role="status">{message}</p>
      <div class="fields">
        <Field id="viewers-gateway" label="Gateway">
          <select id="viewers-gateway" value={gateway} onChange={(e) => setGateway(e.currentTarget.value)}>
            <option value="">all ({viewers.value.length})</option>
            {[...counts.keys()].sort().map((g) => <option key={g} value={g}>{g} ({counts.get(g)})</option>)}
          </select>
        </Field>
      </div>
      <Paged caption={gateway ? `Viewers by ${gateway}` : "Viewers by all gateways"} columns={columns} items={shown} none={viewers.at ? "Nobody watches." : "Asking the controller."} row={(v) => (
        <tr key={v.id}>
          <th scope="row">{v.address || "address not known"}<div class="soft">{[v.player, v.id.slice(0, 8)].filter(Boolean).join(", ")}</div></th>
          <td>{v.gateway}<div class="soft">port {v.port}</div></td>
          <td>{v.channels.join(" → ")}</td>
          <td>{relative(v.since)}</td>
          <td class="number">{v.changes}</td>
          <td class="number">{v.changes > 0 ? durationWords(v.zap) : "–"}</td>
          <td class="number">{count(v.packets)}</td>
          <td class="number">{percent(lossOf([v]))}</td>
          <td><Release what={`viewer ${nameOf(v)}`} path={`/cinema/viewers/${step(v.id)}`} words={removed} done={done} /></td>
        </tr>
      )} />
    </Panel>
  );
}
