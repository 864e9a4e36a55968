// The agents: where they are, what they carry, and whether they take new sessions.

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
import { relative } from "../ui/when";

const columns = ["Agent", "State", "Place", "#Sessions", "#From hosts", "#To hosts", "#Processor", "#Buffers", "New sessions"];

export function Agents({ agents, refresh }: { agents: Resource<Agent[]>; refresh(): void }) {
  const { client } = useWorld();
  const names = useNames();
  const [message, setMessage] = useState("");
  const drain = async (a: Agent): Promise<void> => {
    try {
      await client.post(`/sos/agents/${step(a.name)}/drain`, { on: !a.draining });
      setMessage(a.draining ? `${a.name} takes new sessions again.` : `${a.name} takes no new sessions.`);
    } catch (error) {
      setMessage(`${a.name}: ${names.said(asProblem(error).message)}.`);
    }
    refresh();
  };
  return (
    <Panel id="agents" title="Agents" problem={agents.problem}>
      <p class="notice" role="status">{message}</p>
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
        </tr>
      )} />
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
