// Requests a class.

import { useState } from "preact/hooks";

import { useWorld } from "../state/hooks";
import { parseNumber } from "../ui/format";
import { emptyMatch, matchOf, type Condition } from "./match";
import { MatchEditor } from "./matcheditor";
import { Request } from "../ui/request";
import { Texts, valuesOf, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";

const texts: Text[] = [
  { field: "name", label: "Name", hint: "letters, digits, dots, dashes", read: word },
  { field: "priority", label: "Priority", hint: "0, the first, to 7", read: parseNumber },
  { field: "min_rate", label: "Guaranteed rate", hint: "as in 2Mbit; empty: a share of each link", optional: true, read: word },
  { field: "max_rate", label: "Highest rate", hint: "as in 5Mbit; empty: each link's own", optional: true, read: word },
  { field: "latency", label: "Latency", hint: "of the path, as in 20ms; empty: any", optional: true, read: word },
];

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function ClassForm({ done, cancel }: Props) {
  const { client, live } = useWorld();
  const [values, setValues] = useState<Values>({ priority: "0" });
  const [flows, setFlows] = useState<Condition[][]>([emptyMatch()]);
  const known = [...texts.map((t) => t.field), "flows", ...flows.flatMap((conditions, i) => [`flows[${i}]`, ...conditions.map((c) => `flows[${i}].${c.field}`)])];
  const request = useForm(known, async () => {
    const body = { ...valuesOf(texts, values), flows: flows.map(matchOf) };
    await client.post("/qos/classes", body);
    done(`The class ${values["name"]} was accepted.`);
    live.refreshAll();
  });
  const { fields } = request.errors;
  return (
    <Request title="Request a class" cancel={cancel} {...request}>
      <Texts form="class" texts={texts} values={values} errors={fields} change={setValues} />
      <p class="error">{fields.get("flows")?.join(" ")}</p>
      {flows.map((conditions, i) => (
        <MatchEditor
          key={i} path={`flows[${i}]`} title={`Flow ${i + 1}`} conditions={conditions} errors={fields}
          change={(changed) => setFlows(flows.map((f, j) => (i === j ? changed : f)))}
          remove={flows.length > 1 ? () => setFlows(flows.filter((_, j) => i !== j)) : undefined}
        />
      ))}
      <div class="actions"><button type="button" onClick={() => setFlows([...flows, emptyMatch()])}>Add a flow</button></div>
    </Request>
  );
}
