// A path in words, as a button that keeps it in the picture.

import { useNames } from "../names/usenames";
import { pathWords, type Hop } from "../topology/route";
import type { useShow } from "./show";

export function PathButton({ paths, show }: { paths: Hop[][]; show: ReturnType<typeof useShow> }) {
  const names = useNames();
  if (paths.length === 0) return <span class="soft">none</span>;
  const words = [...new Set(paths.map((hops) => pathWords(hops, names)))];
  return (
    <button type="button" {...show.button}>
      {words.map((w) => <div key={w}>{w}</div>)}
    </button>
  );
}
