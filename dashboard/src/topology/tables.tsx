// What the picture shows, as tables.

import type { Link, Reservation } from "../api/types";
import { bitRate, milliseconds, percent } from "../ui/format";
import { Head } from "../ui/head";
import { hostName, portText, type Graph } from "./graph";
import { loadClass, utilisation } from "./load";
import type { Names } from "./words";

const linkColumns = ["From", "To", "#Used", "#Capacity", "#Promised", "#Utilisation", "#Latency", "#Jitter", "#Loss"];

interface Props {
  graph: Graph;
  names: Names;
  reservations: Reservation[];
}

export function Tables({ graph, names, reservations }: Props) {
  const promised = new Map(reservations.map((r) => [r.link, r.promised]));
  const links = graph.cables.flatMap((c) => [c.ab, c.ba]).filter((l): l is Link => l !== undefined);
  return (
    <div class="tables">
      <table>
        <caption>Links, each direction by itself</caption>
        <Head columns={linkColumns} />
        <tbody>
          {links.map((l) => (
            <tr key={`${l.from.switch} ${l.from.port}`}>
              <th scope="row">{names(l.from.switch)} port {l.from.port}</th>
              <td>{names(l.to.switch)} port {l.to.port}</td>
              <td class="number">{bitRate(l.used_bits_per_second)}</td>
              <td class="number">{bitRate(l.capacity_bits_per_second)}</td>
              <td class="number">{bitRate(promised.get(portText(l.from)) ?? 0)}</td>
              <td class="number"><span class={`mark ${loadClass(utilisation(l))}`} />{percent(utilisation(l))}</td>
              <td class="number">{milliseconds(l.latency_milliseconds)}</td>
              <td class="number">{milliseconds(l.jitter_milliseconds)}</td>
              <td class="number">{percent(l.loss)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <table>
        <caption>Switches</caption>
        <Head columns={["Name", "Datapath", "State"]} />
        <tbody>
          {graph.switches.map((s) => (
            <tr key={s.id}><th scope="row">{s.name}</th><td>{s.id}</td><td>{s.connected ? "connected" : "not connected"}</td></tr>
          ))}
        </tbody>
      </table>
      <table>
        <caption>Hosts</caption>
        <Head columns={["Host", "MAC address", "Place"]} />
        <tbody>
          {graph.hosts.map((h) => (
            <tr key={h.mac + h.at.switch + h.at.port}><th scope="row">{hostName(h)}</th><td>{h.mac}</td><td>{names(h.at.switch)} port {h.at.port}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
