// The sessions under way: where each goes, how fast it is now, what it has carried.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Session } from "../api/types";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { bitRate, byteCount, count } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { Course } from "./course";

const columns = ["Client", "Server", "State", "Agents", "#Now", "#From client", "#To client", "#For", "Began at", "#Sent again", "Course", "End"];
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
          <td><Began of={s} /></td>
          <td class="number">{count(s.retransmits)}</td>
          <td><button type="button" aria-label={`Course of ${s.client}`} aria-pressed={s.id === chosen} onClick={() => setChosen(s.id === chosen ? "" : s.id)}>Course</button></td>
          <td><Release what={`session of ${s.client}`} path={`/sos/sessions/${step(s.id)}`} words={ended} done={done} /></td>
        </tr>
      )} />
      {chosen && <Course key={chosen} id={chosen} />}
    </Panel>
  );
}

/** How fast each agent began to send to the other; the course of the session says why. */
function Began({ of: s }: { of: Session }) {
  const names = useNames();
  const shown = [{ from: s.client_agent, text: s.start_up }, { from: s.server_agent, text: s.start_down }].filter((x) => x.text);
  return <>{shown.map(({ from, text }) => <div key={from} title={cut(names.said(text!))}>{from} {beganAt(text!)}</div>)}</>;
}

/** The rate of "95.5 Mbit/s: the path carries 96.5, as measured". */
export const beganAt = (start: string): string => cut(start.split(":", 1)[0]!, 20);

export const agentsOf = (s: Session): string => (s.client_agent ? `${s.client_agent} → ${s.server_agent ?? "?"}` : "none yet");
