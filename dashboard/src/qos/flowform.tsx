// Declares traffic critical.

import { useState } from "preact/hooks";

import { useWorld } from "../state/hooks";
import { emptyMatch, matchOf } from "./match";
import { MatchEditor } from "./matcheditor";
import { Request } from "../ui/request";
import { Texts, valuesOf, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";

const texts: Text[] = [
  { field: "name", label: "Name", hint: "letters, digits, dots, dashes", read: word },
  { field: "rate", label: "Rate", hint: "that each flow needs, as in 5Mbit", read: word },
  { field: "reverse_rate", label: "Reverse rate", hint: "as in 200kbit; empty: enough for acknowledgements", optional: true, read: word },
  { field: "idle_timeout", label: "Over after a silence of", hint: "1s to 18h; empty: 30s", optional: true, read: word },
];

interface Props {
  done(message: string): void;
  cancel(): void;
}

export function FlowForm({ done, cancel }: Props) {
  const { client, live } = useWorld();
  const [values, setValues] = useState<Values>({});
  const [match, setMatch] = useState(emptyMatch);
  const known = [...texts.map((t) => t.field), "match", ...match.map((c) => `match.${c.field}`)];
  const request = useForm(known, async () => {
    await client.post("/qos/critical", { ...valuesOf(texts, values), match: matchOf(match) });
    done(`The traffic ${values["name"]} is critical from now on.`);
    live.refreshAll();
  });
  const { fields } = request.errors;
  return (
    <Request title="Request a critical flow" cancel={cancel} {...request}>
      <Texts form="flow" texts={texts} values={values} errors={fields} change={setValues} />
      <MatchEditor path="match" title="Its packets" conditions={match} errors={fields} change={setMatch} />
    </Request>
  );
}
