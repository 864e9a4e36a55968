// A chart over time (uPlot), with the same in figures for those who do not see it.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { Head } from "../ui/head";
import { summary } from "./summary";

export interface Series {
  name: string;
  /** One for each time; null where it is not known. */
  values: (number | null)[];
}

interface Props {
  title: string;
  unit(value: number | undefined): string;
  /** Seconds since 1970. */
  times: number[];
  series: Series[];
}

const height = 190;
/** Told apart also without colour: by the dashes of their lines. */
const dashes = [[], [8, 4], [2, 3]];

export function Chart({ title, unit, times, series }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const names = series.map((s) => s.name).join();
  const data: uPlot.AlignedData = [times, ...series.map((s) => s.values)];
  const drawn = times.length > 1;
  useEffect(() => {
    const box = place.current;
    if (!box) return undefined;
    const make = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(options(box, series, unit), plot.current?.data ?? data, box);
    };
    make();
    const size = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height }));
    size.observe(box);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const theme = new MutationObserver(make);
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    dark.addEventListener("change", make);
    return () => {
      size.disconnect();
      theme.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [names, drawn]);
  useEffect(() => plot.current?.setData(data), [times, series]);
  return (
    <figure class="chart" aria-label={title}>
      <figcaption>{title}</figcaption>
      {drawn ? <div ref={place} aria-hidden="true" /> : <p class="soft">There is nothing to draw yet: it takes two readings.</p>}
      {drawn && (
        <table>
          <Head columns={["Line", "#Now", "#Lowest", "#Mean", "#Highest"]} />
          <tbody>
            {series.map((s, i) => {
              const { now, lowest, mean, highest } = summary(s.values);
              return (
                <tr key={s.name}>
                  <th scope="row"><span class={`stroke stroke-${i}`} />{s.name}</th>
                  {[now, lowest, mean, highest].map((v, j) => <td key={j} class="number">{unit(v)}</td>)}
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </figure>
  );
}

function options(box: HTMLElement, series: Series[], unit: Props["unit"]): uPlot.Options {
  const colour = (name: string): string => {
    box.style.color = `var(${name})`;
    const found = getComputedStyle(box).color;
    box.style.color = "";
    return found;
  };
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return {
    width: box.clientWidth, height,
    legend: { show: false },
    cursor: { show: false },
    series: [{}, ...series.map((s, i) => ({ label: s.name, stroke: colour(`--stroke-${i}`), width: 2, dash: dashes[i] ?? [], points: { show: false } }))],
    scales: { y: { range: (_: uPlot, __: number | null, highest: number | null): uPlot.Range.MinMax => [0, (highest || 1) * 1.05] } },
    axes: [axis, { ...axis, size: 86, values: (_, ticks) => ticks.map((v) => unit(v)) }],
  };
}
