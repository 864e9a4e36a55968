// A long list in pages: what the server has may be many, what is drawn is not.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import { Head } from "./head";

const size = 25;

interface Props<T> {
  /** What the list is called, also by a screen reader. */
  caption: string;
  columns: readonly string[];
  items: readonly T[];
  /** What is said when there is nothing. */
  none: string;
  row(item: T): ComponentChildren;
}

export function Paged<T>({ caption, columns, items, none, row }: Props<T>) {
  const [wanted, setPage] = useState(0);
  if (items.length === 0) return <p class="soft">{none}</p>;
  const last = Math.ceil(items.length / size) - 1;
  const page = Math.min(wanted, last);
  const from = page * size;
  return (
    <>
      <div class="scroll" role="region" aria-label={caption} tabindex={0}>
        <table>
          <caption>{caption}</caption>
          <Head columns={columns} />
          <tbody>{items.slice(from, from + size).map(row)}</tbody>
        </table>
      </div>
      {last > 0 && (
        <nav class="pages" aria-label={`Pages of ${caption}`}>
          <button type="button" aria-disabled={page === 0} onClick={() => setPage(Math.max(0, page - 1))}>Previous</button>
          <span role="status">{from + 1} to {Math.min(from + size, items.length)} of {items.length}</span>
          <button type="button" aria-disabled={page === last} onClick={() => setPage(Math.min(last, page + 1))}>Next</button>
        </nav>
      )}
    </>
  );
}

/** A text of which no more than so many letters are shown; the rest is counted. */
export function cut(text: string, letters = 300): string {
  return text.length <= letters ? text : `${text.slice(0, letters)}… (${text.length - letters} more)`;
}
