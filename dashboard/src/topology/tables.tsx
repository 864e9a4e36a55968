// What the picture shows, as tables.

import type { Link, Reservation } from "../api/types";
import type { Names } from "../names/said";
import { bitRate, milliseconds, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { hostName, portText, type Graph } from "./graph";
import { loadClass, utilisation } from "./load";

const linkColumns = ["From", "To", "#Used", "#Capacity", "#Promised", "#Utilisation", "#Latency", "#Jitter", "#Loss"];

interface Props {
  graph: Graph;
  names: Names;
  reservations: Reservation[];
}

export function Tables({ graph, names, reservations }: Props) {
  const promised = new Map(reservations.map((r) => [r.link, r.promised_bits_per_second]));
  const links = graph.cables.flatMap((c) => [c.ab, c.ba]).filter((l): l is Link => l !== undefined);
  return (
    <div class="tables">
      <Paged caption="Links, each direction by itself" columns={linkColumns} items={links} none="No link between switches is known." row={(l) => (
        <tr key={portText(l.from)}>
          <th scope="row">{names.port(l.from)}</th>
          <td>{names.port(l.to)}</td>
          <td class="number">{bitRate(l.used_bits_per_second)}</td>
          <td class="number">{bitRate(l.capacity_bits_per_second)}</td>
          <td class="number">{bitRate(promised.get(portText(l.from)) ?? 0)}</td>
          <td class="number"><span class={`mark ${loadClass(utilisation(l))}`} />{percent(utilisation(l))}</td>
          <td class="number">{milliseconds(l.latency_milliseconds)}</td>
          <td class="number">{milliseconds(l.jitter_milliseconds)}</td>
          <td class="number">{percent(l.loss)}</td>
        </tr>
      )} />
      <Paged caption="Switches" columns={["Name", "Datapath", "State"]} items={graph.switches} none="No switch is connected." row={(s) => (
        <tr key={s.id}><th scope="row">{s.name}</th><td>{s.id}</td><td>{s.connected ? "connected" : "not connected"}</td></tr>
      )} />
      <Paged caption="Hosts" columns={["Host", "MAC address", "Place"]} items={graph.hosts} none="No host is known." row={(h) => (
        <tr key={h.mac + portText(h.at)}><th scope="row">{hostName(h)}</th><td>{h.mac}</td><td>{names.port(h.at)}</td></tr>
      )} />
    </div>
  );
}
