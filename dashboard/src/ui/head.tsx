// The head of a table. Columns of figures stand to the right, like the figures.

/** A column's name; one that begins with # is of figures. */
export const Head = ({ columns }: { columns: readonly string[] }) => (
  <thead>
    <tr>{columns.map((c) => <th key={c} scope="col" class={c.startsWith("#") ? "number" : ""}>{c.replace("#", "")}</th>)}</tr>
  </thead>
);
