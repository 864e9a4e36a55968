// Adds an entry to the whitelist.

import { useState } from "preact/hooks";

import { useWorld } from "../state/hooks";
import { Request } from "../ui/request";
import { list, Texts, valuesOf, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";

const texts: Text[] = [
  { field: "name", label: "Name", hint: "what it is for, in your words", optional: true, read: word },
  { field: "clients", label: "Clients", hint: "addresses or prefixes, as in 10.0.0.0/24", read: list },
  { field: "servers", label: "Servers", hint: "addresses or prefixes", read: list },
  { field: "ports", label: "Ports", hint: "of the servers, as in 443, 8000-8099", read: list },
];

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function EntryForm({ done, cancel }: Props) {
  const { client } = useWorld();
  const [values, setValues] = useState<Values>({});
  const request = useForm(texts.map((t) => t.field), async () => {
    await client.post("/sos/whitelist", valuesOf(texts, values));
    done(values["name"] ? `The entry ${values["name"]} was added.` : "The entry was added.");
  });
  return (
    <Request title="Add an entry to the whitelist" verb="Add" cancel={cancel} {...request}>
      <Texts form="entry" texts={texts} values={values} errors={request.errors.fields} change={setValues} />
    </Request>
  );
}
