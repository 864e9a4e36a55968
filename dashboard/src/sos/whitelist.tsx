// Which connections the agents carry, and the form that adds some.

import { step } from "../api/client";
import type { Entry } from "../api/types";
import { useWorld } from "../state/hooks";
import type { Resource } from "../state/resource";
import { Notes } from "../ui/notes";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { Release } from "../ui/release";
import { useRequests } from "../ui/userequests";
import { clock } from "../ui/when";
import { EntryForm } from "./entryform";

const columns = ["Entry", "Clients", "Servers", "Ports", "Holds", "Remove"];
const removed = { verb: "Remove", past: "removed", effect: "New connections go directly from then on; those under way go on." };

export function Whitelist({ entries, refresh }: { entries: Resource<Entry[]>; refresh(): void }) {
  const { live } = useWorld();
  const requests = useRequests();
  const done = (message: string): void => {
    requests.done(message);
    live.refreshAll();
    refresh();
  };
  return (
    <Panel
      id="whitelist" title="Whitelist" problem={entries.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Add an entry</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <Paged caption="Connections that agents carry" columns={columns} items={entries.value} none={entries.at ? "The whitelist is empty: all connections go directly." : "Asking the controller."} row={(e) => (
        <tr key={e.id}>
          <th scope="row">{e.name || <code>{e.id}</code>}</th>
          <td><List of={e.clients} /></td>
          <td><List of={e.servers} /></td>
          <td><List of={e.ports} /></td>
          <td>{holds(e)}<Notes of={e.notes} /></td>
          <td><Release what={`entry ${e.name || e.id}`} path={`/sos/whitelist/${step(e.id)}`} words={removed} done={done} /></td>
        </tr>
      )} />
      {requests.open && <EntryForm done={done} cancel={requests.toggle} />}
    </Panel>
  );
}

function List({ of }: { of: string[] }) {
  return <>{of.slice(0, 6).map((x) => <div key={x}>{x}</div>)}{of.length > 6 && <div class="soft">and {of.length - 6} more</div>}</>;
}

const holds = (e: Entry): string => [e.start ? `from ${clock(e.start)}` : "", e.stop ? `until ${clock(e.stop)}` : ""].join(" ").trim() || "always";
