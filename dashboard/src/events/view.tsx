// All events that this page has seen, of all parts or of one.

import { useState } from "preact/hooks";

import { useWorld } from "../state/hooks";
import { remembered } from "../state/live";
import { Field } from "../ui/field";
import { Panel } from "../ui/panel";
import { EventList } from "./list";
import { partOf } from "./words";

export function Events() {
  const { live } = useWorld();
  const [part, setPart] = useState("");
  const parts = [...new Set(live.events.map((e) => partOf(e.kind)))].sort();
  const shown = live.events.filter((e) => part === "" || partOf(e.kind) === part);
  return (
    <Panel id="events" title="Events">
      <div class="fields">
        <Field id="events-part" label="Of">
          <select id="events-part" value={part} onChange={(e) => setPart(e.currentTarget.value)}>
            <option value="">all parts</option>
            {parts.map((p) => <option key={p} value={p}>{p}</option>)}
          </select>
        </Field>
      </div>
      {shown.length === 0 ? <p class="soft">The controller tells of no event.</p> : <EventList events={shown} />}
      {live.events.length >= remembered && <p class="soft">The latest {remembered}; older ones are not kept here.</p>}
    </Panel>
  );
}
