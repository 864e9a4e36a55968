// Why connections that are on the whitelist went past the agents.

import type { Direct as Reason } from "../api/types";
import { useNames } from "../names/usenames";
import { count } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { relative } from "../ui/when";

const columns = ["What happened", "What helps", "#Connections", "Latest"];

export function Direct({ reasons, asked }: { reasons: readonly Reason[]; asked: boolean }) {
  const names = useNames();
  return (
    <Panel id="direct" title="Gone directly">
      <Paged caption="Connections that went past the agents, by reason" columns={columns} items={reasons} none={asked ? "None, since the controller was started." : "Asking the controller."} row={(r) => (
        <tr key={r.reason}>
          <th scope="row">{cut(names.said(r.cause))}</th>
          <td>{cut(names.said(r.remedy))}</td>
          <td class="number">{count(r.count)}</td>
          <td>{relative(r.latest)}</td>
        </tr>
      )} />
    </Panel>
  );
}
