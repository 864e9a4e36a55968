// The channels: whether they are on the air, who watches, and what is wrong; and the
// form that adds one.

import { step } from "../api/client";
import type { Channel } from "../api/types";
import { useNames } from "../names/usenames";
import type { Resource } from "../state/resource";
import { cut, Paged } from "../ui/paged";
import { Panel } from "../ui/panel";
import { rateWords } from "../ui/rate";
import { Release } from "../ui/release";
import { useRequests } from "../ui/userequests";
import { relative } from "../ui/when";
import { ChannelForm } from "./channelform";

const columns = ["#Number", "Channel", "On the air", "#Viewers", "#Declared", "#Measured", "Ingress gateway", "Trouble", "Tree", "Remove"];
const removal = { verb: "Remove", past: "removed", effect: "It goes off the air, and its viewers see nothing more of it." };
const words: Record<Channel["on_air"], string> = { live: "live", waiting: "waits for its producer", down: "down" };
const classes: Record<Channel["on_air"], string> = { live: "state-good", waiting: "soft", down: "state-bad" };

interface Props {
  channels: Resource<Channel[]>;
  chosen: string;
  choose(name: string): void;
  refresh(): void;
}

export function Channels({ channels, chosen, choose, refresh }: Props) {
  const names = useNames();
  const requests = useRequests();
  const done = (message: string): void => {
    requests.done(message);
    refresh();
  };
  const list = [...channels.value].sort((x, y) => x.number - y.number);
  return (
    <Panel
      id="channels" title="Channels" problem={channels.problem}
      actions={<button type="button" ref={requests.opener} aria-expanded={requests.open} onClick={requests.toggle}>Add a channel</button>}
    >
      <p class="notice" role="status" ref={requests.notice} tabindex={-1}>{requests.message}</p>
      <Paged caption="Channels; choose a tree to see it in the picture" columns={columns} items={list} none={channels.at ? "No channel is declared." : "Asking the controller."} row={(c) => (
        <tr key={c.name} class={c.name === chosen ? "shown" : ""}>
          <td class="number">{c.number}</td>
          <th scope="row">{cut(c.title)}<div class="soft">{[c.name, c.source || "published by WHIP", ...(c.view_password ? ["with a password"] : [])].join(", ")}</div></th>
          <td>
            <span class={classes[c.on_air]}>{words[c.on_air]}</span>
            {c.since && <div class="soft">since {relative(c.since)}</div>}
            {c.error && <div class="state-bad">{cut(names.said(c.error))}</div>}
          </td>
          <td class="number">{c.viewers}</td>
          <td class="number">{rateWords(c.bit_rate)}</td>
          <td class="number">{rateWords(c.measured)}</td>
          <td>{c.at || <span class="state-bad">none</span>}{c.producer && <div class="soft">{cut(c.producer, 80)}</div>}</td>
          <td>{c.trouble ? <span class="state-bad">{cut(names.said(c.trouble))}</span> : <span class="soft">none</span>}</td>
          <td><button type="button" aria-label={`Tree of ${c.title}`} aria-pressed={c.name === chosen} onClick={() => choose(c.name === chosen ? "" : c.name)}>Tree</button></td>
          <td><Release what={`channel ${c.name}`} path={`/cinema/channels/${step(c.name)}`} words={removal} done={done} /></td>
        </tr>
      )} />
      {requests.open && <ChannelForm channels={channels.value} done={done} cancel={requests.toggle} />}
    </Panel>
  );
}
