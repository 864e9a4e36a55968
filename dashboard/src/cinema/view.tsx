// Cinema: channels and their trees, gateways, viewers, and what channels take of links.

import { useState } from "preact/hooks";

import type { Agent, Budget, Channel, Lineup, Tree, Viewer } from "../api/types";
import { useList, useWatched } from "../state/usewatched";
import { Panel } from "../ui/panel";
import { Budgets } from "./budgets";
import { Channels } from "./channels";
import { EgressGateways, IngressGateways } from "./gateways";
import { summary } from "./summary";
import { TreePanel } from "./tree";
import { Viewers } from "./viewers";

export function Cinema() {
  const [chosen, setChosen] = useState("");
  const channels = useList<Channel>("/cinema/channels", 2_000, "cinema.channel");
  const trees = useList<Tree>("/cinema/trees", 3_000, "cinema.tree");
  // Events tell of each viewer that comes, changes and goes: they may be many, and a list of many long.
  const viewers = useList<Viewer>("/cinema/viewers", 3_000);
  const lineup = useWatched<Lineup | undefined>("lineup", undefined, (client) => client.get<Lineup>("/cinema/lineup"), 5_000, "cinema.egress-agent");
  const ingress = useList<Agent>("/cinema/ingress/agents", 3_000, "cinema.ingress-agent");
  const egress = useList<Agent>("/cinema/egress/agents", 3_000, "cinema.egress-agent");
  const budgets = useList<Budget>("/cinema/links", 3_000, "cinema.tree");
  const all = [channels, trees, viewers, lineup, ingress, egress, budgets];
  const refresh = (): void => {
    for (const r of all) void r.refresh();
  };
  const asked = all.every((r) => r.at > 0);
  return (
    <>
      <Panel id="cinema-status" title="Cinema" problem={lineup.problem}>
        {asked ? <p>{summary(channels.value, viewers.value, egress.value, lineup.value)}</p> : <p class="soft">Asking the controller.</p>}
      </Panel>
      <Channels channels={channels} chosen={chosen} choose={setChosen} refresh={refresh} />
      <TreePanel trees={trees} channel={channels.value.find((c) => c.name === chosen)} viewers={viewers.value} egress={egress.value} />
      <EgressGateways gateways={egress} viewers={viewers.value} lineup={lineup.value} refresh={refresh} />
      <IngressGateways gateways={ingress} channels={channels.value} refresh={refresh} />
      <Viewers viewers={viewers} refresh={refresh} />
      <Budgets budgets={budgets} />
    </>
  );
}
