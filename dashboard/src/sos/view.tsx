// SOS: agents, the paths between them, the whitelist, the sessions under way, and those that have ended.

import { useList, useWatched } from "../state/usewatched";
import type { Agent, AllPaths, Entry, Session, SosStatus } from "../api/types";
import { useNames } from "../names/usenames";
import { Panel } from "../ui/panel";
import { cut } from "../ui/paged";
import { Agents } from "./agents";
import { Direct } from "./direct";
import { History } from "./history";
import { Paths } from "./paths";
import { Sessions } from "./sessions";
import { Whitelist } from "./whitelist";

/** How many ended sessions are asked for: the latest. */
const past = 500;

export function Transfers() {
  const status = useWatched<SosStatus | undefined>("sos", undefined, (client) => client.get<SosStatus>("/sos/status"), 5_000, "sos.");
  const agents = useList<Agent>("/sos/agents", 3_000, "sos.agent");
  const entries = useList<Entry>("/sos/whitelist", 15_000, "sos.whitelist");
  const live = useList<Session>("/sos/sessions?state=live&limit=1000", 2_000, "sos.session");
  const ended = useList<Session>(`/sos/sessions?state=past&limit=${past}`, 10_000, "sos.session.ended", "sos.session.direct");
  const paths = useWatched<AllPaths>("sos-paths", { paths: [], unanswered: [] }, (client) => client.get<AllPaths>("/sos/paths"), 3_000);
  const refresh = (): void => {
    for (const r of [status, agents, entries, live, ended]) void r.refresh();
  };
  return (
    <>
      <Panel id="sos-status" title="SOS" problem={status.problem}><State of={status.value} /></Panel>
      <Sessions sessions={live} refresh={refresh} />
      <Agents agents={agents} refresh={refresh} />
      <Paths paths={paths} />
      <Whitelist entries={entries} refresh={refresh} />
      <Direct reasons={status.value?.direct ?? []} asked={status.at > 0} />
      <History sessions={ended} bound={past} />
    </>
  );
}

function State({ of }: { of: SosStatus | undefined }) {
  const names = useNames();
  if (!of) return <p class="soft">Asking the controller.</p>;
  return (
    <>
      <p>
        <span class={of.enabled && of.ready ? "state-good" : "state-bad"}>{!of.ready ? "It starts" : of.enabled ? "It takes new connections" : "It is disabled: new connections go directly"}</span>
        {`. ${of.agents_up} of ${of.agents} agents are up, ${of.whitelist_active} of ${of.whitelist_entries} whitelist entries hold now, ${of.sessions} sessions run.`}
      </p>
      {of.errors.length > 0 && (
        <ul class="faults" aria-label="What does not work now">{of.errors.slice(0, 10).map((e) => <li key={e} class="state-bad">{cut(names.said(e))}</li>)}</ul>
      )}
      {of.errors.length > 10 && <p class="soft">And {of.errors.length - 10} more.</p>}
    </>
  );
}
