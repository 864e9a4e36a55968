// Asks what the rules do to a packet.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import type { Trace as Answer } from "../api/types";
import { useWorld } from "../state/hooks";
import { Field } from "../ui/field";
import { Panel } from "../ui/panel";
import { Request } from "../ui/request";
import { Texts, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";
import { hasPorts, packetOf, protocols, type Protocol } from "./packet";
import { Steps } from "./steps";

const addresses: Text[] = [
  { field: "src", label: "From", hint: "address of the host that sends", read: word },
  { field: "dst", label: "To", hint: "address of the host that is meant", read: word },
];
const ports: Text[] = [
  { field: "src_port", label: "Source port", hint: "empty: none", optional: true, read: word },
  { field: "dst_port", label: "Destination port", hint: "as in 443", optional: true, read: word },
];
const place: Text[] = [
  { field: "switch", label: "Comes into switch", hint: "empty: where the host stands", optional: true, read: word },
  { field: "in_port", label: "By port", hint: "empty: the host's", optional: true, read: word },
  { field: "more", label: "More fields", hint: "as in ip_dscp=46,tcp_flags=syn", optional: true, read: word },
];

export function Trace() {
  const { client } = useWorld();
  const [protocol, setProtocol] = useState<Protocol>("tcp");
  const [values, setValues] = useState<Values>({});
  const [answer, setAnswer] = useState<Answer>();
  const texts = [...addresses, ...(hasPorts(protocol) ? ports : []), ...place];
  const request = useForm([], async () => {
    setAnswer(undefined);
    const given = Object.fromEntries(texts.map((t) => [t.field, values[t.field] ?? ""]));
    setAnswer(await client.get<Answer>(`/network/trace?packet=${step(packetOf(protocol, given))}`));
  });
  return (
    <Panel id="trace" title="What happens to a packet">
      <Request title="Trace a packet" verb="Trace" still {...request}>
        <div class="fields">
          <Field id="trace-protocol" label="Protocol">
            <select id="trace-protocol" value={protocol} onChange={(e) => setProtocol(e.currentTarget.value as Protocol)}>
              {protocols.map((p) => <option key={p} value={p}>{p}</option>)}
            </select>
          </Field>
        </div>
        <Texts form="trace" texts={texts} values={values} errors={request.errors.fields} change={setValues} />
      </Request>
      <div role="status" aria-label="Trace">{answer && <Steps of={answer} />}</div>
    </Panel>
  );
}
