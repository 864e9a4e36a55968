// Declares a flow critical.

import { useState } from "preact/hooks";

import { step } from "../api/client";
import { useWorld } from "../state/hooks";
import { described, Field } from "../ui/field";
import { parseRate } from "../ui/format";
import { emptyMatch, matchOf } from "./match";
import { MatchEditor } from "./matcheditor";
import { Request } from "./request";
import { useForm } from "./useform";

const texts = [
  { field: "name", label: "Name", hint: "letters, digits and dashes" },
  { field: "rate", label: "Rate", hint: "that it needs, in bit/s, as in 5M" },
] as const;

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function FlowForm({ done, cancel }: Props) {
  const { client, live } = useWorld();
  const [values, setValues] = useState({ name: "", rate: "" });
  const [match, setMatch] = useState(emptyMatch);
  const request = useForm(["name", "rate", "match", ...match.map((c) => `match.${c.field}`)], async () => {
    const name = values.name.trim();
    await client.put(`/qos/critical/${step(name)}`, { name, rate: parseRate(values.rate), match: matchOf(match) });
    done(`The flow ${name} is critical from now on.`);
    live.refreshAll();
  });
  const { fields } = request.errors;
  return (
    <Request title="Request a critical flow" cancel={cancel} {...request}>
      <div class="fields">
        {texts.map(({ field, label, hint }) => (
          <Field key={field} id={`flow-${field}`} label={label} hint={hint} errors={fields.get(field)}>
            <input
              {...described(`flow-${field}`, fields.get(field))} name={field} autocomplete="off" value={values[field]}
              onInput={(e) => setValues({ ...values, [field]: e.currentTarget.value })}
            />
          </Field>
        ))}
      </div>
      <MatchEditor path="match" title="Its packets" conditions={match} errors={fields} change={setMatch} />
    </Request>
  );
}
