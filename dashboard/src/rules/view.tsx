// The rules in the switches, by switch and owner, and what they do to a packet.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Rule } from "../api/types";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { useList } from "../state/usewatched";
import { Panel } from "../ui/panel";
import { Field } from "../ui/field";
import { Trace } from "./trace";
import { RuleTable } from "./table";

export function Rules() {
  return (
    <>
      <Trace />
      <Filtered />
    </>
  );
}

function Filtered() {
  const { live } = useWorld();
  const names = useNames();
  const [wanted, setSwitch] = useState("");
  const [owner, setOwner] = useState("");
  const switches = [...live.switches.value].sort((x, y) => names.of(x.dpid).localeCompare(names.of(y.dpid), "en", { numeric: true }));
  const chosen = switches.some((s) => s.dpid === wanted) ? wanted : switches[0]?.dpid;
  return (
    <Panel id="rules" title="Rules" problem={live.switches.problem}>
      <div class="fields">
        <Field id="rules-switch" label="Switch">
          <select id="rules-switch" value={chosen} onChange={(e) => setSwitch(e.currentTarget.value)}>
            {switches.map((s) => <option key={s.dpid} value={s.dpid}>{names.of(s.dpid)} ({s.rules} rules)</option>)}
          </select>
        </Field>
        {chosen && <Owned of={chosen} owner={owner} choose={setOwner} />}
      </div>
      {!chosen && <p class="soft">{live.switches.at ? "No switch is connected." : "Asking the controller."}</p>}
    </Panel>
  );
}

/** The rules of one switch: of all owners, or of one. */
function Owned({ of, owner, choose }: { of: string; owner: string; choose(owner: string): void }) {
  const names = useNames();
  const rules = useList<Rule>(`/network/rules?switch=${step(of)}`, 10_000, "network.switch");
  const counts = new Map<string, number>();
  for (const r of rules.value) counts.set(r.owner, (counts.get(r.owner) ?? 0) + 1);
  const owners = [...counts.keys()].sort();
  const now = counts.has(owner) ? owner : "";
  const shown = rules.value.filter((r) => now === "" || r.owner === now);
  return (
    <>
      <Field id="rules-owner" label="Owner">
        <select id="rules-owner" value={now} onChange={(e) => choose(e.currentTarget.value)}>
          <option value="">all ({rules.value.length})</option>
          {owners.map((o) => <option key={o} value={o}>{o} ({counts.get(o)})</option>)}
        </select>
      </Field>
      <div class="wide">
        {rules.problem && <p class="error" role="status">Not up to date: {names.said(rules.problem.message)}.</p>}
        <RuleTable rules={shown} caption={`Rules of ${now || "all owners"} in ${names.of(of)}`} asked={rules.at > 0} />
      </div>
    </>
  );
}
