// The tree of the chosen channel: in the picture of the network, and in figures.

import type { Agent, Channel, Tree, TreeSwitch, Viewer } from "../api/types";
import type { Names } from "../names/said";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import type { Resource } from "../state/resource";
import { Topology } from "../topology/panel";
import { several } from "../ui/format";
import { Paged } from "../ui/paged";
import { rateWords } from "../ui/rate";
import { fromRoot, onward, routeOfTree } from "./way";

const columns = ["Switch", "Comes in by", "Goes on to", "#Viewers’ copies", "#Groups"];

interface Props {
  trees: Resource<Tree[]>;
  channel: Channel | undefined;
  viewers: Viewer[];
  egress: Agent[];
}

export function TreePanel({ trees, channel, viewers, egress }: Props) {
  const names = useNames();
  const tree = channel && trees.value.find((t) => t.channel === channel.name);
  return (
    <Topology
      title={channel ? `Tree of ${channel.title}` : "Trees"} problem={trees.problem} route={tree && routeOfTree(tree, viewers, egress)}
      intro={<p role="status">{!channel ? "Choose the tree of a channel to see it here." : tree ? summary(tree, channel, names) : "Asking the controller."}</p>}
    >
      {tree?.from && <Switches of={tree} />}
    </Topology>
  );
}

function summary(tree: Tree, channel: Channel, names: Names): string {
  if (!tree.from) return `No link carries ${channel.title}: nobody watches it.`;
  return `${channel.title} comes in at ${names.said(tree.from)}${channel.at ? ` from ${channel.at}` : ""}, is on ${several(tree.links.length, "link")}, with ${rateWords(tree.bit_rate)} kept on each, and is copied to ${several(tree.viewers, "viewer")}.`;
}

function Switches({ of: tree }: { of: Tree }) {
  const { live } = useWorld();
  const names = useNames();
  const links = live.links.value;
  const to = (s: TreeSwitch): string => onward(tree, s, links).map((d) => names.of(d)).join(", ");
  return (
    <Paged caption="Switches of the tree, from where the channel comes in" columns={columns} items={fromRoot(tree, links)} none="" row={(s) => (
      <tr key={s.switch}>
        <th scope="row">{names.of(s.switch)}</th>
        <td>port {s.in}</td>
        <td>{to(s) || <span class="soft">no other</span>}</td>
        <td class="number">{s.copies}</td>
        <td class="number">{s.groups}</td>
      </tr>
    )} />
  );
}
