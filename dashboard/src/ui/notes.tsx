// What something does not get though nothing is wrong: packets that another service has.

import { useNames } from "../names/usenames";

export function Notes({ of }: { of: string[] | null | undefined }) {
  const names = useNames();
  return <>{of?.map((n) => <div key={n} class="soft">{names.said(n)}</div>)}</>;
}
