// The sessions that have ended, and why.

import { useState } from "preact/hooks";

import type { Session } from "../api/types";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { bitRate, byteCount } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { clock } from "../ui/when";
import { Course } from "./course";
import { agentsOf } from "./sessions";

const columns = ["Ended", "Client", "Server", "Agents", "How it ended", "#Carried", "#Mean rate", "#Set up in", "Course"];

export function History({ sessions, bound }: { sessions: Resource<Session[]>; bound: number }) {
  const names = useNames();
  const [chosen, setChosen] = useState("");
  const list = sessions.value;
  return (
    <Panel id="history" title="History" problem={sessions.problem}>
      <Paged caption="Sessions that have ended, the latest first" columns={columns} items={list} none={sessions.at ? "No session has ended." : "Asking the controller."} row={(s) => (
        <tr key={s.id} class={s.id === chosen ? "shown" : ""}>
          <td>{s.ended ? clock(s.ended) : ""}</td>
          <th scope="row">{s.client}</th>
          <td>{s.server}</td>
          <td>{agentsOf(s)}</td>
          <td>{cut(names.said(s.how ?? "not known"))}</td>
          <td class="number">{byteCount(s.bytes_up + s.bytes_down)}</td>
          <td class="number">{bitRate(s.bits_per_second)}</td>
          <td class="number">{durationWords(s.setup.total)}</td>
          <td><button type="button" aria-label={`Course of ${s.client}`} aria-pressed={s.id === chosen} onClick={() => setChosen(s.id === chosen ? "" : s.id)}>Course</button></td>
        </tr>
      )} />
      {list.length >= bound && <p class="soft">The latest {bound}; sluice sos sessions has the others.</p>}
      {chosen && <Course key={chosen} id={chosen} />}
    </Panel>
  );
}
