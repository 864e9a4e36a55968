// One session: its way, its set-up, and what it carried over time.

import { step } from "../api/client";
import type { Sample, Session } from "../api/types";
import { Chart } from "../charts/chart";
import { useNames } from "../names/usenames";
import { useWatched } from "../state/usewatched";
import { durationWords } from "../ui/duration";
import { bitRate } from "../ui/format";
import { cut } from "../ui/paged";

export function Course({ id }: { id: string }) {
  const names = useNames();
  const session = useWatched<Session | undefined>(id, undefined, (client) => client.get<Session>(`/sos/sessions/${step(id)}`), 3_000, "sos.session.ended");
  const s = session.value;
  return (
    <div class="course" role="region" aria-label="Course of the session">
      {session.problem && <p class="error" role="status">The course cannot be shown: {names.said(session.problem.message)}.</p>}
      {s && (
        <dl class="facts">
          <dt>Client to its agent</dt><dd>{names.way(s.client_path) || "not known"}</dd>
          <dt>Between the agents</dt><dd>{(s.agent_paths ?? []).map((p) => names.way(p)).join("; ") || "not known"}</dd>
          <dt>Agent to the server</dt><dd>{names.way(s.server_path) || "not known"}</dd>
          <dt>Connections</dt><dd>{s.connections ?? "not known"}{s.why_connections ? `, ${cut(s.why_connections)}` : ""}</dd>
          {s.start_up && <><dt>{s.client_agent} began</dt><dd>{cut(names.said(s.start_up))}</dd></>}
          {s.start_down && <><dt>{s.server_agent} began</dt><dd>{cut(names.said(s.start_down))}</dd></>}
          <dt>Set up</dt><dd>in {durationWords(s.setup.total)}: agents {durationWords(s.setup.prepare)}, rules {durationWords(s.setup.rules)}, server {durationWords(s.setup.commit)}, client’s rules {durationWords(s.setup.client)}</dd>
        </dl>
      )}
      {s && <Chart title="Rate of the session" unit={bitRate} times={timesOf(s.samples ?? [])} series={[{ name: "from the client", values: rates(s.samples ?? [], "bytes_up") }, { name: "to the client", values: rates(s.samples ?? [], "bytes_down") }]} />}
    </div>
  );
}

/** Seconds since 1970 of each sample but the first: rates are between two. */
const timesOf = (samples: Sample[]): number[] => samples.slice(1).map((s) => Date.parse(s.at) / 1000);

export function rates(samples: Sample[], of: "bytes_up" | "bytes_down"): number[] {
  return samples.slice(1).map((s, i) => {
    const before = samples[i]!;
    const seconds = (Date.parse(s.at) - Date.parse(before.at)) / 1000;
    return seconds > 0 ? (Math.max(0, s[of] - before[of]) * 8) / seconds : 0;
  });
}
