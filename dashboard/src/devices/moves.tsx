// What happened to devices: from where to where, why, and how long it took.

import type { Move } from "../api/types";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { clock } from "../ui/when";
import { gapWords } from "./gap";
import { spotWords } from "./table";

const columns = ["When", "Device", "What", "From", "To", "Gap", "#Rules in", "How it ended"];

export function Moves({ moves, of, bound }: { moves: Resource<Move[]>; of: string; bound: number }) {
  const names = useNames();
  const list = moves.value;
  return (
    <Panel id="moves" title={of ? `Moves of ${of}` : "Moves"} problem={moves.problem}>
      <Paged caption="Attachments and moves, the latest first" columns={columns} items={list} none={moves.at ? "No device has moved." : "Asking the controller."} row={(m) => (
        <tr key={m.id}>
          <td>{clock(m.started)}</td>
          <th scope="row">{m.device}</th>
          <td>{m.kind}<div class="soft">{cut(names.said(m.cause), 120)}</div></td>
          <td>{m.from ? spotWords(m.from, names) : ""}</td>
          <td>{m.to ? spotWords(m.to, names) : ""}</td>
          <td>{gapWords(m)}</td>
          <td class="number">{durationWords(m.parts.trigger_to_rules)}</td>
          <td class={m.result === "failed" ? "state-bad" : ""}>
            {m.result}{m.how ? `: ${cut(names.said(m.how))}` : ""}
            {m.fallback && <div class="soft">{cut(names.said(m.fallback))}</div>}
          </td>
        </tr>
      )} />
      <p class="soft">
        The gap is what the controller measures of it, from the device’s first message at the new place: address, rules, and the way to the device.
        Association is the time from the port’s coming up until that message.
      </p>
      {list.length >= bound && <p class="soft">The latest {bound}; sluice handover has the others.</p>}
    </Panel>
  );
}
