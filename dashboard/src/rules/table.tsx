// Rules with their counters.

import type { Rule } from "../api/types";
import { useNames } from "../names/usenames";
import { byteCount, count } from "../ui/format";
import { cut, Paged } from "../ui/paged";

const columns = ["Owner", "#Table", "#Priority", "Match", "Actions", "#Packets", "#Bytes"];

export function RuleTable({ rules, caption, asked }: { rules: Rule[]; caption: string; asked: boolean }) {
  const names = useNames();
  const sorted = [...rules].sort((x, y) => x.table - y.table || y.priority - x.priority);
  return (
    <Paged key={caption} caption={caption} columns={columns} items={sorted} none={asked ? "There is no such rule." : "Asking the controller."} row={(r) => (
      <tr key={`${r.table} ${r.priority} ${r.match} ${r.cookie} ${r.name}`}>
        <th scope="row">{r.owner}<div class="soft">{cut(names.said(r.name), 80)}{r.confirmed ? "" : ", not confirmed"}</div></th>
        <td class="number">{r.table}</td>
        <td class="number">{r.priority}<div class="soft">{r.stage}</div></td>
        <td><code>{cut(r.match || "everything")}</code></td>
        <td><code>{cut(r.actions || "drop")}</code></td>
        <td class="number">{count(r.packets)}</td>
        <td class="number">{byteCount(r.bytes)}</td>
      </tr>
    )} />
  );
}
