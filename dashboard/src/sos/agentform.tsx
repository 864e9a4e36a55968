// Adds an agent.

import { useState } from "preact/hooks";

import type { Agent } from "../api/types";
import { useWorld } from "../state/hooks";
import { parseNumber } from "../ui/format";
import { Request } from "../ui/request";
import { list, Texts, valuesOf, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";

const texts: Text[] = [
  { field: "name", label: "Name", hint: "as in the agent’s own configuration", read: word },
  { field: "url", label: "Control API", hint: "as in https://192.0.2.7:8440", read: word },
  { field: "addrs", label: "Data addresses", hint: "one, or one of each family", read: list },
  { field: "max_sessions", label: "Sessions at most", hint: "empty: as many as the agent takes", optional: true, read: parseNumber },
];

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function AgentForm({ done, cancel }: Props) {
  const { client } = useWorld();
  const [values, setValues] = useState<Values>({});
  const request = useForm(texts.map((t) => t.field), async () => {
    const added = await client.post<Agent>("/sos/agents", valuesOf(texts, values));
    done(`The agent ${added.name} was added.`);
  });
  return (
    <Request title="Add an agent" verb="Add" cancel={cancel} {...request}>
      <Texts form="agent" texts={texts} values={values} errors={request.errors.fields} change={setValues} />
    </Request>
  );
}
