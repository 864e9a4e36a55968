// The latest events, newest first.

import { useWorld } from "../state/hooks";
import { Panel } from "./panel";

export function Events() {
  const { live } = useWorld();
  return (
    <Panel id="events" title="Events">
      {live.events.length === 0 && <p class="soft">Nothing has happened since this page was opened.</p>}
      <ol class="events" aria-label="Latest events, newest first">
        {live.events.map((e) => (
          <li key={e.id}>
            <time dateTime={e.at}>{new Date(e.at).toLocaleTimeString()}</time>
            <b>{e.kind}</b>
            <code>{e.attrs === undefined ? "" : JSON.stringify(e.attrs)}</code>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
