// The agents: where they are, what they carry, and whether they take new sessions; and
// the form that adds one.

import { DrainButton, Drained, useDrains } from "../agents/drain";
import { AgentPlace, AgentState } from "../agents/state";
import { step } from "../api/client";
import type { Agent } from "../api/types";
import type { Resource } from "../state/resource";
import { bitRate, byteCount, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { useRequests } from "../ui/userequests";
import { AgentForm } from "./agentform";

const columns = ["Agent", "State", "Place", "#Sessions", "#From hosts", "#To hosts", "#Processor", "#Buffers", "New sessions", "Remove"];
const removal = (a: Agent) => ({
  verb: "Remove", past: "removed", force: "Also if it carries sessions: they end with a reset",
  effect: `New sessions go by other agents, or directly.${a.announced ? " It announces itself, so it comes back within a minute: drain it instead, or end its program first." : ""}`,
});

export function Agents({ agents, refresh }: { agents: Resource<Agent[]>; refresh(): void }) {
  const requests = useRequests();
  const drains = useDrains("/sos/agents", "sessions", refresh);
  const done = (message: string): void => {
    drains.forget();
    requests.done(message);
    refresh();
  };
  return (
    <Panel
      id="agents" title="Agents" problem={agents.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Add an agent</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <Drained of={drains} />
      <Paged caption="Agents and their load" columns={columns} items={agents.value} none={agents.at ? "There is no agent: connections go directly." : "Asking the controller."} row={(a) => (
        <tr key={a.name}>
          <th scope="row">{a.name}<div class="soft">{a.addrs.join(", ")}</div></th>
          <td><AgentState of={a} /></td>
          <td><AgentPlace of={a} /></td>
          <td class="number">{a.sessions}{a.session_limit > 0 ? ` of ${a.session_limit}` : ""}</td>
          <td class="number">{bitRate(a.load.bits_per_second_in)}</td>
          <td class="number">{bitRate(a.load.bits_per_second_out)}</td>
          <td class="number">{percent(a.load.cpu)}</td>
          <td class="number">{byteCount(a.load.buffered_bytes)}</td>
          <td><DrainButton of={a} drains={drains} /></td>
          <td><Release what={`agent ${a.name}`} path={`/sos/agents/${step(a.name)}`} words={removal(a)} done={done} /></td>
        </tr>
      )} />
      {requests.open && <AgentForm done={done} cancel={requests.toggle} />}
    </Panel>
  );
}
