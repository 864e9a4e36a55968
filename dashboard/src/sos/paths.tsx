// What the agents know of the paths between them, and how much of it is in use.

import type { AllPaths, SosPath } from "../api/types";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { durationWords } from "../ui/duration";
import { bitRate, percent, several } from "../ui/format";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { relative } from "../ui/when";

const columns = ["Path", "#Known rate", "Confidence", "#In use", "#Queue", "#Loss"];

export function Paths({ paths }: { paths: Resource<AllPaths> }) {
  const names = useNames();
  const { paths: list, unanswered } = paths.value;
  return (
    <Panel id="paths" title="Paths" problem={paths.problem}>
      {unanswered.slice(0, 10).map((u) => <p key={u} class="error">{cut(names.said(u))}</p>)}
      {unanswered.length > 10 && <p class="soft">And {unanswered.length - 10} more.</p>}
      <Paged caption="Paths between agents, as the one that sends knows them" columns={columns} items={list} none={paths.at ? "No agent has sent to another." : "Asking the controller."} row={(p) => (
        <tr key={`${p.agent} ${p.peer} ${p.port}`}>
          <th scope="row">{p.agent} → {p.peer_agent ?? p.peer}<div class="soft">port {p.port}</div></th>
          <td class="number">{p.bits_per_second ? bitRate(p.bits_per_second) : "not known"}</td>
          <td>{confidence(p)}<div class="soft">{p.seen ? `shown ${relative(p.seen)}` : "not shown yet"}</div></td>
          <td class="number">{bitRate(p.delivered_bits_per_second)}<div class="soft">{allowed(p)}</div>{p.limit_bits_per_second > 0 && <div class="soft">limit beside others {bitRate(p.limit_bits_per_second)}</div>}</td>
          <td class="number">{durationWords(p.queue)}<div class="soft">{roundTrip(p)}</div></td>
          <td class="number">{percent(p.loss)}</td>
        </tr>
      )} />
    </Panel>
  );
}

const sources: Record<string, string> = { measured: "measured", declared: "declared by the controller", file: "from the agent’s file" };

/** How the rate of a path was learned, and whether it is taken for certain. */
export function confidence(p: SosPath): string {
  if (!p.bits_per_second) return "nothing to go by";
  return `${sources[p.source ?? ""] ?? p.source ?? ""}${p.doubtful ? "; doubtful, tried at half" : ""}`;
}

/** What the sessions of a path may send together, and how many have more than that. */
export function allowed(p: SosPath): string {
  if (!p.pace_bits_per_second) return "no session sends";
  return `of ${bitRate(p.pace_bits_per_second)}${p.sessions ? `; ${several(p.sessions, "session")} with more to send` : ""}`;
}

/** The round trip that a queue lengthens. */
export const roundTrip = (p: SosPath): string => (p.rtt === "0s" ? "round trip not known" : `beyond ${durationWords(p.rtt)}`);
