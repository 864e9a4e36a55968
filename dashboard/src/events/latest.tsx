// The latest events, below the network.

import { useWorld } from "../state/hooks";
import { Panel } from "../ui/panel";
import { EventList } from "./list";

const latest = 12;

export function Latest() {
  const { live } = useWorld();
  return (
    <Panel id="events" title="Latest events" actions={<a href="#events">All events</a>}>
      {live.events.length === 0 ? <p class="soft">The controller tells of no event.</p> : <EventList events={live.events.slice(0, latest)} />}
    </Panel>
  );
}
