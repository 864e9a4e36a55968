// Handover: the devices, where each is and by which access, and how it moved.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Device, HandoverStatus, Move } from "../api/types";
import { useNames } from "../names/usenames";
import { useList, useWatched } from "../state/usewatched";
import { cut } from "../ui/paged";
import { Panel } from "../ui/panel";
import { DeviceTable } from "./table";
import { Moves } from "./moves";

/** How many records are asked for: the latest. */
const latest = 500;

export function Devices() {
  const names = useNames();
  const [of, setOf] = useState("");
  const status = useWatched<HandoverStatus | undefined>("handover", undefined, (client) => client.get<HandoverStatus>("/handover/status"), 5_000, "handover.");
  const devices = useList<Device>("/handover/devices", 5_000, "handover.");
  const moves = useList<Move>(`/handover/handovers?limit=${latest}${of ? `&device=${step(of)}` : ""}`, 10_000, "handover.");
  const refresh = (): void => {
    for (const r of [status, devices, moves]) void r.refresh();
  };
  const s = status.value;
  return (
    <>
      <Panel id="handover-status" title="Handover" problem={status.problem}>
        {s ? (
          <p>
            <span class={s.ready ? "state-good" : "state-bad"}>{s.ready ? "Ready" : "It starts"}</span>
            {`. ${s.attached} of ${s.devices} devices are attached here, ${s.away} are in other domains; ${s.daemons} listen for orders, ${s.leases} leases hold.`}
          </p>
        ) : <p class="soft">Asking the controller.</p>}
        {s && s.errors.length > 0 && (
          <ul class="faults" aria-label="What does not work now">{s.errors.slice(0, 10).map((e) => <li key={e} class="state-bad">{cut(names.said(e))}</li>)}</ul>
        )}
        {s && s.errors.length > 10 && <p class="soft">And {s.errors.length - 10} more.</p>}
      </Panel>
      <DeviceTable devices={devices} chosen={of} choose={setOf} refresh={refresh} />
      <Moves moves={moves} of={of} bound={latest} />
    </>
  );
}
