// All of Cinema in a few sentences.

import type { Agent, Channel, Lineup, Viewer } from "../api/types";
import { several } from "../ui/format";
import { zapsOf, zapWords } from "./zaps";

export function summary(channels: readonly Channel[], viewers: readonly Viewer[], egress: readonly Agent[], lineup: Lineup | undefined): string {
  const live = channels.filter((c) => c.on_air === "live").length, up = egress.filter((a) => a.state === "up").length;
  const room = (lineup?.gateways ?? []).reduce((sum, g) => sum + g.room, 0);
  const zaps = zapsOf(viewers);
  const changed = zaps.viewers === 0 ? "No viewer has changed channel yet."
    : `The last changes of channel of ${several(zaps.viewers, "viewer")} took ${zapWords(zaps.median)} in the median, and ${zapWords(zaps.slowest)} at most.`;
  return `${live} of ${several(channels.length, "channel")} ${channels.length === 1 ? "is" : "are"} on the air. ${viewers.length} ${viewers.length === 1 ? "viewer watches" : "viewers watch"} by ${up} of ${egress.length} egress gateways that are up, which have room for ${room} more. ${changed}`;
}
