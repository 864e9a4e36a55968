// Events, newest first.

import type { BusEvent } from "../api/types";
import { useNames } from "../names/usenames";
import { clock } from "../ui/when";
import { eventWords } from "./words";

export function EventList({ events }: { events: BusEvent[] }) {
  const names = useNames();
  return (
    <ol class="events" aria-label="Events, newest first" tabindex={0}>
      {events.map((e) => (
        <li key={e.id}>
          <time dateTime={e.at}>{clock(e.at)}</time>
          <span class="said">{eventWords(e, names)}</span>
          <code class="soft">{e.kind}</code>
        </li>
      ))}
    </ol>
  );
}
