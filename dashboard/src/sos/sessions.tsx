// The sessions under way: where each goes, how fast it is now, what it has carried.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Session } from "../api/types";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { bitRate, byteCount, count } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { Course } from "./course";

const columns = ["Client", "Server", "State", "Agents", "#Now", "#From client", "#To client", "#For", "#Sent again", "Course", "End"];
const ended = { verb: "End", past: "ended", effect: "Client and server see a reset." };

export function Sessions({ sessions, refresh }: { sessions: Resource<Session[]>; refresh(): void }) {
  const [chosen, setChosen] = useState("");
  const [message, setMessage] = useState("");
  const list = sessions.value;
  const done = (text: string): void => {
    setMessage(text);
    refresh();
  };
  return (
    <Panel id="sessions" title="Sessions" problem={sessions.problem}>
      <p class="notice" role="status">{message}</p>
      <Paged caption="Sessions under way, the latest first" columns={columns} items={list} none={sessions.at ? "No session is under way." : "Asking the controller."} row={(s) => (
        <tr key={s.id} class={s.id === chosen ? "shown" : ""}>
          <th scope="row">{s.client}</th>
          <td>{s.server}</td>
          <td>{s.state}</td>
          <td>{agentsOf(s)}</td>
          <td class="number">{bitRate(s.current_bits_per_second)}</td>
          <td class="number">{byteCount(s.bytes_up)}</td>
          <td class="number">{byteCount(s.bytes_down)}</td>
          <td class="number">{durationWords(s.took)}</td>
          <td class="number">{count(s.retransmits)}</td>
          <td><button type="button" aria-label={`Course of ${s.client}`} aria-pressed={s.id === chosen} onClick={() => setChosen(s.id === chosen ? "" : s.id)}>Course</button></td>
          <td><Release what={`session of ${s.client}`} path={`/sos/sessions/${step(s.id)}`} words={ended} done={done} /></td>
        </tr>
      )} />
      {chosen && <Course key={chosen} id={chosen} />}
    </Panel>
  );
}

export const agentsOf = (s: Session): string => (s.client_agent ? `${s.client_agent} → ${s.server_agent ?? "?"}` : "none yet");
