// Adds a channel.

import { useState } from "preact/hooks";

import type { Channel } from "../api/types";
import { useWorld } from "../state/hooks";
import { Check } from "../ui/check";
import { parseNumber } from "../ui/format";
import { Request } from "../ui/request";
import { Texts, valuesOf, word, type Text, type Values } from "../ui/texts";
import { useForm } from "../ui/useform";

const asTyped = (text: string): string => text;

const texts: Text[] = [
  { field: "name", label: "Name", hint: "lower-case letters, digits and dashes", read: word },
  { field: "number", label: "Number", hint: "that no other channel has", read: parseNumber },
  { field: "title", label: "Title", hint: "that viewers see; empty: the name", optional: true, read: word },
  { field: "bit_rate", label: "Bit rate", hint: "what it may send, as in 2Mbit", read: word },
  { field: "picture", label: "Largest picture", hint: "360p to 1440p; empty: 720p", optional: true, read: word },
  // An address may contain the producer's account, passphrase or stream key.
  { field: "source", label: "Source address", hint: "of its producer, as in rtsp://10.0.0.7/live; empty: a producer publishes it by WHIP", optional: true, secret: true, read: word },
  { field: "ingress", label: "Ingress gateway", hint: "empty: the controller chooses", optional: true, read: word },
  { field: "publish_password", label: "Password for producers", hint: "empty: nobody can publish it by WHIP", optional: true, secret: true, read: asTyped },
  { field: "view_password", label: "Password for viewers", hint: "empty: everybody may watch", optional: true, secret: true, read: asTyped },
];

interface Props {
  channels: Channel[];
  done(message: string): void;
  cancel(): void;
}

export function ChannelForm({ channels, done, cancel }: Props) {
  const { client } = useWorld();
  const [values, setValues] = useState<Values>({ number: String(1 + Math.max(0, ...channels.map((c) => c.number))) });
  const [shown, setShown] = useState(false);
  const request = useForm(texts.map((t) => t.field), async () => {
    const added = await client.post<Channel>("/cinema/channels", valuesOf(texts, values));
    done(`The channel ${added.name} was added.`);
  });
  return (
    <Request title="Add a channel" verb="Add" cancel={cancel} {...request}>
      <Texts form="channel" texts={texts} values={values} errors={request.errors.fields} change={setValues} shown={shown} />
      <Check label="Show the source address and the passwords" checked={shown} change={setShown} />
    </Request>
  );
}
