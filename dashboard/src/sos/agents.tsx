// The agents: where they are, what they carry, and whether they take new sessions; and
// the form that adds one.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import { asProblem } from "../api/problem";
import type { Agent } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import type { Resource } from "../state/resource";
import { bitRate, byteCount, percent } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { useRequests } from "../ui/userequests";
import { relative } from "../ui/when";
import { AgentForm } from "./agentform";

const columns = ["Agent", "State", "Place", "#Sessions", "#From hosts", "#To hosts", "#Processor", "#Buffers", "New sessions", "Remove"];
const removal = (a: Agent) => ({
  verb: "Remove", past: "removed", force: "Also if it carries sessions: they end with a reset",
  effect: `New sessions go by other agents, or directly.${a.announced ? " It announces itself, so it comes back within a minute: drain it instead, or end its program first." : ""}`,
});

export function Agents({ agents, refresh }: { agents: Resource<Agent[]>; refresh(): void }) {
  const { client } = useWorld();
  const names = useNames();
  const requests = useRequests();
  const [drained, setDrained] = useState("");
  const [refused, setRefused] = useState("");
  const drain = async (a: Agent): Promise<void> => {
    setDrained("");
    setRefused("");
    try {
      await client.post(`/sos/agents/${step(a.name)}/drain`, { on: !a.draining });
      setDrained(a.draining ? `${a.name} takes new sessions again.` : `${a.name} takes no new sessions.`);
    } catch (error) {
      setRefused(`${a.name}: ${names.said(asProblem(error).message)}.`);
    }
    refresh();
  };
  const done = (message: string): void => {
    setDrained("");
    setRefused("");
    requests.done(message);
    refresh();
  };
  return (
    <Panel
      id="agents" title="Agents" problem={agents.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Add an agent</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <p class="notice" role="status">{drained}</p>
      <p class="error" role="alert">{refused}</p>
      <Paged caption="Agents and their load" columns={columns} items={agents.value} none={agents.at ? "There is no agent: connections go directly." : "Asking the controller."} row={(a) => (
        <tr key={a.name}>
          <th scope="row">{a.name}<div class="soft">{a.addrs.join(", ")}</div></th>
          <td><State of={a} /></td>
          <td>{[...new Set(Object.values(a.places).map((p) => names.said(p)))].join(", ") || <span class="state-bad">not seen in the network</span>}</td>
          <td class="number">{a.sessions}{a.session_limit > 0 ? ` of ${a.session_limit}` : ""}</td>
          <td class="number">{bitRate(a.load.bits_per_second_in)}</td>
          <td class="number">{bitRate(a.load.bits_per_second_out)}</td>
          <td class="number">{percent(a.load.cpu)}</td>
          <td class="number">{byteCount(a.load.buffered_bytes)}</td>
          <td><button type="button" aria-label={a.draining ? `Let ${a.name} take new sessions` : `Drain ${a.name}`} onClick={() => void drain(a)}>{a.draining ? "Resume" : "Drain"}</button></td>
          <td><Release what={`agent ${a.name}`} path={`/sos/agents/${step(a.name)}`} words={removal(a)} done={done} /></td>
        </tr>
      )} />
      {requests.open && <AgentForm done={done} cancel={requests.toggle} />}
    </Panel>
  );
}

function State({ of: a }: { of: Agent }) {
  const names = useNames();
  const good = a.state === "up" && !a.draining;
  return (
    <>
      <span class={good ? "state-good" : "state-bad"}>{a.draining ? "drains" : a.state}</span>
      {a.state !== "up" && a.last_seen && <div class="soft">last heard {relative(a.last_seen)}</div>}
      {a.error && <div class="state-bad">{cut(names.said(a.error))}</div>}
      {(a.warnings ?? []).slice(0, 3).map((w) => <div key={w} class="soft">{cut(names.said(w))}</div>)}
    </>
  );
}
