// The gateways of both kinds: by which pictures come into the network, and by which
// viewers get them.

import { DrainButton, Drained, useDrains } from "../agents/drain";
import { AgentPlace, AgentState } from "../agents/state";
import type { Agent, Channel, Lineup, Viewer } from "../api/types";
import type { Resource } from "../state/resource";
import { bitRate, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { parseRate } from "../ui/rate";
import { lossOf, zapsOf, zapWords } from "./zaps";

const ingressColumns = ["Gateway", "State", "Place", "#Channels", "#On the air", "#Declared", "#Sends", "#Processor", "New channels"];
const egressColumns = ["Gateway", "State", "Place", "#Viewers", "#Room", "#To viewers", "#Processor", "#Median zap", "#Slowest zap", "#Lost", "New viewers"];

const Name = ({ of: a }: { of: Agent }) => <th scope="row">{a.name}<div class="soft">{a.addrs.join(", ")}</div></th>;

interface Props {
  gateways: Resource<Agent[]>;
  refresh(): void;
}

export function IngressGateways({ gateways, channels, refresh }: Props & { channels: Channel[] }) {
  const drains = useDrains("/cinema/ingress/agents", "channels", refresh);
  return (
    <Panel id="ingress" title="Ingress gateways" problem={gateways.problem}>
      <Drained of={drains} />
      <Paged caption="By which channels come into the network" columns={ingressColumns} items={gateways.value} none={gateways.at ? "There is no ingress gateway: no channel is on the air." : "Asking the controller."} row={(a) => {
        const has = channels.filter((c) => c.at === a.name);
        return (
          <tr key={a.name}>
            <Name of={a} />
            <td><AgentState of={a} /></td>
            <td><AgentPlace of={a} /></td>
            <td class="number">{has.length}</td>
            <td class="number">{has.filter((c) => c.on_air === "live").length}</td>
            <td class="number">{bitRate(has.reduce((sum, c) => sum + (parseRate(c.bit_rate) ?? 0), 0))}</td>
            <td class="number">{bitRate(a.load.bits_per_second_out)}</td>
            <td class="number">{percent(a.load.cpu)}</td>
            <td><DrainButton of={a} drains={drains} /></td>
          </tr>
        );
      }} />
    </Panel>
  );
}

export function EgressGateways({ gateways, viewers, lineup, refresh }: Props & { viewers: Viewer[]; lineup: Lineup | undefined }) {
  const drains = useDrains("/cinema/egress/agents", "viewers", refresh);
  const room = new Map((lineup?.gateways ?? []).map((g) => [g.name, g.room]));
  return (
    <Panel id="egress" title="Egress gateways" problem={gateways.problem}>
      <Drained of={drains} />
      <Paged caption="By which viewers get channels, and how their last changes of channel went" columns={egressColumns} items={gateways.value} none={gateways.at ? "There is no egress gateway: nobody can watch." : "Asking the controller."} row={(a) => {
        const here = viewers.filter((v) => v.gateway === a.name), zaps = zapsOf(here);
        return (
          <tr key={a.name}>
            <Name of={a} />
            <td><AgentState of={a} /></td>
            <td><AgentPlace of={a} /></td>
            <td class="number">{here.length}</td>
            <td class="number">{room.get(a.name) ?? "–"}</td>
            <td class="number">{bitRate(a.load.bits_per_second_out)}</td>
            <td class="number">{percent(a.load.cpu)}</td>
            <td class="number">{zapWords(zaps.median)}</td>
            <td class="number">{zapWords(zaps.slowest)}</td>
            <td class="number">{percent(lossOf(here))}</td>
            <td><DrainButton of={a} drains={drains} /></td>
          </tr>
        );
      }} />
    </Panel>
  );
}
