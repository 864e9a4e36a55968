// Requests a class.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import { useWorld } from "../state/hooks";
import { described, Field } from "../ui/field";
import { parseNumber, parseRate } from "../ui/format";
import { emptyMatch, matchOf, type Condition } from "./match";
import { MatchEditor } from "./matcheditor";
import { Request } from "./request";
import { useForm } from "./useform";

interface Values {
  name: string;
  priority: string;
  min_rate: string;
  max_rate: string;
  latency: string;
}

const empty: Values = { name: "", priority: "0", min_rate: "", max_rate: "", latency: "" };

const texts: { field: keyof Values; label: string; hint: string }[] = [
  { field: "name", label: "Name", hint: "letters, digits and dashes" },
  { field: "priority", label: "Priority", hint: "0, the highest, to 7" },
  { field: "min_rate", label: "Guaranteed rate", hint: "in bit/s, as in 2M; empty: its share" },
  { field: "max_rate", label: "Highest rate", hint: "in bit/s, as in 5M; empty: the whole link" },
  { field: "latency", label: "Latency", hint: "required, in milliseconds; empty: any" },
];

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function ClassForm({ done, cancel }: Props) {
  const { client, live } = useWorld();
  const [values, setValues] = useState(empty);
  const [flows, setFlows] = useState<Condition[][]>([emptyMatch()]);
  const known = [...Object.keys(empty), "flows", ...flows.flatMap((conditions, i) => [`flows[${i}]`, ...conditions.map((c) => `flows[${i}].${c.field}`)])];
  const request = useForm(known, async () => {
    await client.put(`/qos/classes/${step(values.name.trim())}`, body(values, flows));
    done(`The class ${values.name} was accepted.`);
    live.refreshAll();
  });
  const { fields } = request.errors;
  return (
    <Request title="Request a class" cancel={cancel} {...request}>
      <div class="fields">
        {texts.map(({ field, label, hint }) => (
          <Field key={field} id={`class-${field}`} label={label} hint={hint} errors={fields.get(field)}>
            <input
              {...described(`class-${field}`, fields.get(field))} name={field} autocomplete="off" value={values[field]}
              onInput={(e) => setValues({ ...values, [field]: e.currentTarget.value })}
            />
          </Field>
        ))}
      </div>
      <p class="error">{fields.get("flows")?.join(" ")}</p>
      {flows.map((conditions, i) => (
        <MatchEditor
          key={conditions[0]?.key ?? i} path={`flows[${i}]`} title={`Flow ${i + 1}`} conditions={conditions} errors={fields}
          change={(changed) => setFlows(flows.map((f, j) => (i === j ? changed : f)))}
          remove={flows.length > 1 ? () => setFlows(flows.filter((_, j) => i !== j)) : undefined}
        />
      ))}
      <div class="actions"><button type="button" onClick={() => setFlows([...flows, emptyMatch()])}>Add a flow</button></div>
    </Request>
  );
}

/** What is sent: fields that are left empty are left to the server. */
function body(values: Values, flows: Condition[][]): unknown {
  const optional = (name: string, text: string, read: (t: string) => unknown) => (text.trim() === "" ? {} : { [name]: read(text) });
  return {
    name: values.name.trim(),
    ...optional("priority", values.priority, parseNumber),
    ...optional("min_rate", values.min_rate, parseRate),
    ...optional("max_rate", values.max_rate, parseRate),
    ...optional("latency", values.latency, parseNumber),
    flows: flows.map(matchOf),
  };
}
