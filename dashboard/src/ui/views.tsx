// The views of the page, each with an address of its own: #sos, #devices and so on.

import { useEffect, useState } from "preact/hooks";

export const views = [
  { id: "network", name: "Network" },
  { id: "links", name: "Links" },
  { id: "sos", name: "Transfers" },
  { id: "devices", name: "Devices" },
  { id: "channels", name: "Channels" },
  { id: "names", name: "Names" },
  { id: "rules", name: "Rules" },
  { id: "events", name: "Events" },
] as const;

export type View = (typeof views)[number]["id"];

export interface Address {
  view: View;
  /** What of it is looked at: #links/00000000000000a1/3 has "00000000000000a1/3". */
  rest: string;
}

/** The address that the hash of the URL names; whatever it does not know is the first view. */
export function addressOf(hash: string): Address {
  const [name = "", ...rest] = hash.replace(/^#/, "").split("/");
  const view = views.find((v) => v.id === name);
  return view ? { view: view.id, rest: decoded(rest.join("/")) } : { view: "network", rest: "" };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export function useAddress(): Address {
  const [address, setAddress] = useState(() => addressOf(location.hash));
  useEffect(() => {
    const changed = (): void => setAddress(addressOf(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}

export const Views = ({ current }: { current: View }) => (
  <nav class="views" aria-label="Views">
    {views.map((v) => <a key={v.id} href={`#${v.id}`} aria-current={v.id === current ? "page" : undefined}>{v.name}</a>)}
  </nav>
);
