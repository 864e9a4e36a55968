// A trace in words: at each switch which rule of whose, what it does, and where the
// packet goes.

import type { Trace, TraceStep } from "../api/types";
import { useNames } from "../names/usenames";
import { cut } from "../ui/paged";

/** What is drawn of a packet that goes to very many places. */
const shown = 64;
const passed = 3;

export function Steps({ of }: { of: Trace }) {
  return (
    <>
      <p>Packet: <code>{cut(of.packet)}</code></p>
      <ol class="steps" aria-label="Steps of the packet">
        {of.steps.slice(0, shown).map((s, i) => <Step key={i} of={s} number={i} />)}
      </ol>
      {of.steps.length > shown && <p class="soft">And {of.steps.length - shown} more steps.</p>}
    </>
  );
}

function Step({ of: s, number }: { of: TraceStep; number: number }) {
  const names = useNames();
  return (
    <li>
      <b>{names.of(s.switch)}</b>, in by port {s.in_port}{s.parent >= 0 && s.parent !== number - 1 ? `, from step ${s.parent + 1}` : ""}
      {(s.tables ?? []).map((t) => (
        <div key={t.table} class="lookup">
          {t.rule ? (
            <>Table {t.table}: a rule of <b>{t.rule.owner}</b> ({names.said(t.rule.name)}), priority {t.rule.priority} in {t.rule.stage}: <code>{cut(t.rule.match || "everything")}</code> does <code>{cut(t.rule.actions || "drop")}</code></>
          ) : <>Table {t.table}: no rule matches</>}
          {t.did && t.did.length > 0 && <div class="soft">{cut(t.did.join("; "))}</div>}
          {(t.passed ?? []).slice(0, passed).map((p) => (
            <div key={p.cookie + p.match} class="soft">Not {p.owner} ({names.said(p.name)}), priority {p.priority}: it wants {cut(p.want, 80)}, the packet has {cut(p.have, 80)}</div>
          ))}
        </div>
      ))}
      {(s.outputs ?? []).slice(0, shown).map((o) => <div key={o.port} class="lookup">Out by port {o.port}{o.to ? ` to ${names.said(o.to)}` : ""}{o.via ? ` (${names.said(o.via)})` : ""}</div>)}
      {s.end && <div class="lookup">{names.said(s.end)}</div>}
    </li>
  );
}
