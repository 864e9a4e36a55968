// The budgets: what channels take of each link, of what they may.

import type { Budget } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import type { Resource } from "../state/resource";
import { portText } from "../topology/graph";
import { loadClass } from "../topology/load";
import { bitRate, percent } from "../ui/format";
import { Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { parseRate, rateWords } from "../ui/rate";
import { fullestFirst, taken } from "./budget";

const columns = ["From", "To", "#Channels", "#Kept for them", "#They may take", "#Share", "#Capacity"];

export function Budgets({ budgets }: { budgets: Resource<Budget[]> }) {
  const { live } = useWorld();
  const names = useNames();
  const capacity = new Map(live.links.value.map((l) => [portText(l.from), l.capacity_bits_per_second]));
  return (
    <Panel id="budgets" title="Budgets" problem={budgets.problem}>
      <Paged caption="What channels take of links, the fullest first" columns={columns} items={fullestFirst(budgets.value)} none={budgets.at ? "No link between switches is known." : "Asking the controller."} row={(b) => (
        <tr key={b.link}>
          <th scope="row">{names.said(b.link)}</th>
          <td>{names.said(b.to)}</td>
          <td class="number">{b.channels}</td>
          <td class="number">{rateWords(b.kept)}</td>
          <td class="number">{parseRate(b.most) ? rateWords(b.most) : <span class="soft">all of it</span>}</td>
          <td class="number"><span class={`mark ${loadClass(taken(b))}`} />{percent(taken(b))}</td>
          <td class="number">{bitRate(capacity.get(b.link))}</td>
        </tr>
      )} />
      <p class="soft">What is kept is what channels may send by their declaration. A channel that would take more of a link than there is left goes another way, or is refused.</p>
    </Panel>
  );
}
