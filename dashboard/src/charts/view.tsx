// The links, and of the one that is chosen what was measured within the last hour.

import { step } from "../api/client";
import type { Link, LinkHistory } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { useWatched } from "../state/usewatched";
import { portText } from "../topology/graph";
import { utilisation } from "../topology/load";
import { bitRate, milliseconds, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Chart } from "./chart";

const columns = ["From", "To", "#Used", "#Capacity", "#Utilisation", "#Latency", "#Loss", "History"];

export function Links({ from }: { from: string }) {
  const { live } = useWorld();
  const names = useNames();
  const { links } = live;
  const sorted = [...links.value].sort((x, y) => names.port(x.from).localeCompare(names.port(y.from), "en", { numeric: true }));
  const chosen = links.value.find((l) => portText(l.from) === from);
  return (
    <Panel id="links" title="Links" problem={links.problem}>
      {from && !chosen && links.at > 0 && <p class="error" role="status">No link leaves by {names.said(from)} now.</p>}
      {chosen && <History link={chosen} />}
      <Paged caption="Links, each direction by itself" columns={columns} items={sorted} none={links.at ? "No link between switches is known." : "Asking the controller."} row={(l) => (
        <tr key={portText(l.from)} class={l === chosen ? "shown" : ""}>
          <th scope="row">{names.port(l.from)}</th>
          <td>{names.port(l.to)}</td>
          <td class="number">{bitRate(l.used_bits_per_second)}</td>
          <td class="number">{bitRate(l.capacity_bits_per_second)}</td>
          <td class="number">{percent(utilisation(l))}</td>
          <td class="number">{milliseconds(l.latency_milliseconds)}</td>
          <td class="number">{percent(l.loss)}</td>
          <td><a href={`#links/${portText(l.from)}`} aria-label={`History of ${names.port(l.from)} to ${names.port(l.to)}`}>History</a></td>
        </tr>
      )} />
    </Panel>
  );
}

function History({ link }: { link: Link }) {
  const names = useNames();
  const from = portText(link.from);
  const history = useWatched<LinkHistory[]>(from, [], (client) => client.get<LinkHistory[]>(`/network/links/history?from=${step(from)}`), 5_000);
  const points = history.value[0]?.points ?? [];
  const times = points.map((p) => Date.parse(p.at) / 1000);
  return (
    <section class="charts" aria-label={`History of ${names.port(link.from)} to ${names.port(link.to)}`}>
      <h3>{names.port(link.from)} to {names.port(link.to)}, the last hour</h3>
      {history.problem && <p class="error" role="status">Not up to date: {names.said(history.problem.message)}.</p>}
      <Chart title="Rate" unit={bitRate} times={times} series={[
        { name: "used", values: points.map((p) => p.used_bits_per_second) },
        { name: "capacity", values: points.map((p) => p.capacity_bits_per_second ?? null) },
      ]} />
      <Chart title="Latency" unit={milliseconds} times={times} series={[
        { name: "latency", values: points.map((p) => p.latency_milliseconds ?? null) },
        { name: "jitter", values: points.map((p) => p.jitter_milliseconds) },
      ]} />
      <Chart title="Loss" unit={percent} times={times} series={[
        { name: "lost on the way", values: points.map((p) => p.loss) },
        { name: "lost in queues", values: points.map((p) => p.queue_loss) },
      ]} />
    </section>
  );
}
