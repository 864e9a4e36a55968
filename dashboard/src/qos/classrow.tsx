// A class in the table, and below it its queues, one for each port on its paths.

import { step } from "../api/client";
import type { Class, Queue } from "../api/types";
import { useNames } from "../names/usenames";
import { routeOf, type Hop } from "../topology/route";
import { bitRate, byteCount, count, milliseconds } from "../ui/format";
import { Head } from "../ui/head";
import { Notes } from "../ui/notes";
import { Release } from "../ui/release";
import { matchWords } from "./match";
import { PathButton } from "./pathbutton";
import { useShow } from "./show";

export const columns = ["Class", "State", "#Priority", "#Guaranteed", "#Highest", "#Latency", "Flows", "Path", "Release"];

interface Props {
  of: Class;
  queues: Queue[] | null | undefined;
  released(message: string): void;
}

export const pathsOf = (c: Class): Hop[][] => (c.paths ?? []).map((p) => p.hops ?? []);

export function ClassRow({ of: c, queues, released }: Props) {
  const paths = pathsOf(c);
  const show = useShow(`class ${c.name}`, routeOf(paths));
  return (
    <>
      <tr class={show.shown ? "shown" : ""} {...show.row}>
        <th scope="row">{c.name}</th>
        <td><State of={c} /><Notes of={c.notes} /></td>
        <td class="number">{c.priority}</td>
        <td class="number">{c.min_rate ?? "a share"}</td>
        <td class="number">{c.max_rate ?? "the link"}</td>
        <td class="number">{c.latency_milliseconds ? milliseconds(c.latency_milliseconds) : "any"}</td>
        <td>{c.flows?.map((f) => <div key={matchWords(f)}>{matchWords(f)}</div>)}</td>
        <td><PathButton paths={paths} show={show} /></td>
        <td><Release what={`class ${c.name}`} path={`/qos/classes/${step(c.name)}`} done={released} /></td>
      </tr>
      {queues && queues.length > 0 && (
        <tr>
          <td class="inner" colSpan={columns.length}><Queues of={c.name} queues={queues} /></td>
        </tr>
      )}
    </>
  );
}

function State({ of: { state, reason } }: { of: Class }) {
  const names = useNames();
  const kind = { active: "state-good", provisioning: "soft", degraded: "state-bad", ineffective: "state-bad" }[state];
  return <span class={kind}>{state}{reason ? `: ${names.said(reason)}` : ""}</span>;
}

const queueColumns = ["Queue at", "#Rate", "#Packets", "#Bytes", "#Drops", "#Without effect"];

function Queues({ of, queues }: { of: string; queues: Queue[] }) {
  const names = useNames();
  return (
    <table aria-label={`Queues of class ${of}`}>
      <Head columns={queueColumns} />
      <tbody>
        {queues.map((q) => (
          <tr key={`${q.switch} ${q.port}`}>
            <th scope="row">
              {names.port(q)}
              {q.fault && <div class="state-bad">{names.said(q.fault)}</div>}
            </th>
            <td class="number">{bitRate(q.bits_per_second)}</td>
            <td class="number">{count(q.packets)}</td>
            <td class="number">{byteCount(q.bytes)}</td>
            <td class={q.drops > 0 ? "number state-bad" : "number"}>{count(q.drops)}</td>
            <td class={q.without_effect > 0 ? "number state-bad" : "number"}>{count(q.without_effect)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
