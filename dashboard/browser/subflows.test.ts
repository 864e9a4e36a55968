// A visit to connections of Multipath TCP, whose further subflows have paths of their own.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { desk, open, phone, shot, variable, type Opened } from "./browser";
import { tooSmall, tooWide, unreached } from "./everywhere";
import { blameless, logIn } from "./visit";

const receiver = variable("SLUICE_RECEIVER");

let visit: Opened;

beforeAll(async () => {
  visit = await open();
  await logIn(visit);
}, 30_000);

afterAll(() => visit?.close());

async function happen(what: "begin" | "cut"): Promise<void> {
  const answer = await fetch(`${variable("SLUICE_HAPPEN")}/${what}`, { method: "POST" });
  expect([answer.status, await answer.text()]).toEqual([200, ""]);
}

const list = () => visit.page.getByRole("table", { name: /^Connections of Multipath TCP/ });
/** What chooses a connection: below each stand its subflows. */
const connection = (n: number) => list().locator("> tbody > tr").nth(2 * n).getByRole("button");
const subflows = (n: number) => visit.page.getByRole("table", { name: /^Subflows of / }).nth(n).locator("tbody tr");
const paths = (n: number): Promise<string[]> => subflows(n).locator("td:last-child").allTextContents();
const elsewhere = () => visit.page.getByRole("heading", { name: "Topology" }).hover();

/** Where the connection stands that sends, and where the one that fetches. */
let sends = 0, fetches = 1;

interface Line {
  kind: string;
  stroke: string;
  dashes: string;
  middle: [number, number];
}

/** The lines of subflows in the picture. */
const lines = (): Promise<Line[]> => visit.page.locator(".picture line.strand").evaluateAll((all) => all.map((e) => {
  const n = (name: string): number => Number(e.getAttribute(name)), style = getComputedStyle(e);
  return { kind: e.classList[1]!, stroke: style.stroke, dashes: style.strokeDasharray, middle: [(n("x1") + n("x2")) / 2, (n("y1") + n("y2")) / 2] };
}));

const drawn = (count: number): Promise<void> => expect.poll(async () => (await lines()).length).toBe(count);

/** How far any two lines are apart, at least. */
const closest = (all: Line[]): number => Math.min(...all.flatMap((a, i) => all.slice(i + 1).map((b) => Math.hypot(a.middle[0] - b.middle[0], a.middle[1] - b.middle[1]))));

describe("connections", { timeout: 120_000 }, () => {
  test("none is there", async () => {
    await visit.page.getByText("No further subflow of a connection has been placed.").waitFor();
    await drawn(0);
  });

  test("each with its subflows, by paths of their own, and what they carry", async () => {
    const { page } = visit;
    await happen("begin");
    await expect.poll(() => list().getByRole("row", { name: new RegExp(`^[0-9a-f]{8}@${receiver.replaceAll(".", "\\.")} 2 `) }).count()).toBe(2);
    for (const n of [0, 1]) {
      await expect.poll(async () => (await paths(n)).sort()).toEqual(["s0 → s1 → s2 → s4", "s0 → s1 → s3 → s4"]);
      await expect.poll(async () => (await subflows(n).locator("td:nth-child(3)").allTextContents()).filter((text) => /^[1-9][\d.]* [kM]bit\/s/.test(text)).length).toBe(2);
    }
    if (/:7101/.test((await subflows(0).first().textContent())!)) [sends, fetches] = [1, 0];
    expect(await subflows(sends).first().textContent()).toMatch(/^1tcp 10\.0\.9\.\d:\d+ > [\d.]+:7100[\d.]+ [kM]bit\/s[\d.]+ [kM]B/);
    await expect.poll(async () => (await subflows(fetches).allTextContents()).filter((t) => t.includes(":7101") && t.includes("in reverse")).length).toBe(2);
    await page.getByRole("group", { name: /^Topology: 5 switches, 5 links/ }).waitFor();
    expect(await barriers(page)).toEqual([]);
  });

  test("the chosen one is drawn: a line for each subflow, side by side on the same link", async () => {
    const { page } = visit;
    const paths = connection(sends);
    await paths.click();
    await elsewhere();
    await drawn(6);
    const all = await lines();
    expect([...new Set(all.map((l) => l.kind))].sort()).toEqual(["strand-0", "strand-1"]);
    expect(new Set(all.map((l) => `${l.stroke} ${l.dashes}`)).size).toBe(2);
    expect(closest(all)).toBeGreaterThan(3);
    const shared = page.getByRole("img", { name: /^Link s0 port \d, s1 port \d/ });
    await expect.poll(() => shared.locator("line.strand").count()).toBe(2);
    const words = await shared.getAttribute("aria-label");
    expect(words).toMatch(/s0 to s1: .*, subflow 1: [\d.]+ [kM]bit\/s, subflow 2: [\d.]+ [kM]bit\/s/);
    const beside = async (of: RegExp): Promise<number> => (await page.locator(".picture svg text").allTextContents()).filter((t) => of.test(t)).length;
    await expect.poll(() => beside(/1: [\d.]+ [kM]bit\/s · 2: [\d.]+ [kM]bit\/s$/)).toBe(1);
    for (const one of [/ms[^·]*1: [\d.]+ [kM]bit\/s$/, /ms[^·]*2: [\d.]+ [kM]bit\/s$/]) await expect.poll(() => beside(one)).toBeGreaterThan(0);
    expect(await page.locator(".switch.on-route").count()).toBe(5);
    expect(await page.locator(".host.on-route").count()).toBe(2);
    await shot(page, "subflows");
    await page.emulateMedia({ colorScheme: "dark" });
    await shot(page, "subflows-dark");
    expect(await barriers(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: "light" });
    await paths.click();
    await elsewhere();
    await drawn(0);
  });

  test("what a subflow fetches is drawn on the other side of its links", async () => {
    const { page } = visit;
    const row = subflows(fetches).last();
    await row.hover();
    await drawn(3);
    expect(new Set((await lines()).map((l) => l.kind))).toEqual(new Set(["strand-1"]));
    expect(await page.getByRole("img", { name: /^Link s0 port \d, s1 port \d/ }).getAttribute("aria-label")).toMatch(/s1 to s0: .*, subflow 2: /);
    await elsewhere();
    await drawn(0);
  });

  test("a link is cut: both go by the other way, while one looks", async () => {
    const { page } = visit;
    const paths = connection(sends);
    await paths.focus();
    await page.keyboard.press("Enter");
    await drawn(6);
    await happen("cut");
    await expect.poll(() => paths.textContent()).toBe("s0 → s1 → s3 → s4");
    await page.getByText("moved 1 time").first().waitFor();
    await drawn(6);
    await expect.poll(() => page.getByRole("img", { name: /^Link s3 port \d, s4 port \d|^Link s1 port \d, s3 port \d/ }).locator("line.strand").count()).toBe(4);
    expect(closest(await lines())).toBeGreaterThan(3);
    await shot(page, "subflows-moved");
    await page.getByText(/^Further subflow tcp .* was moved to another path/).first().waitFor();
  });

  test("everything is reached by the keyboard, and a phone is usable", async () => {
    const { page } = visit;
    expect(await unreached(page)).toEqual([]);
    await page.setViewportSize(phone);
    expect(await tooWide(page)).toEqual([]);
    expect(await tooSmall(page)).toEqual([]);
    expect(await barriers(page)).toEqual([]);
    await shot(page, "phone-subflows");
    await page.setViewportSize(desk);
  });

  test("thousands are no burden, and what they are called is text", async () => {
    const { page } = visit;
    const [one] = await (await page.waitForResponse((r) => r.url().endsWith("/api/v1/qos/subflows"))).json() as [Record<string, unknown>];
    await page.evaluate(([one, receiver]) => {
      const many = Array.from({ length: 8192 }, (_, i) => ({ ...one, id: `x${i}`, connection: i < 100 ? "<b>many</b>@10.0.0.9" : `${i % 2000}@${receiver}`, flow: "<img src=x onerror='throw 1'>" }));
      const body = JSON.stringify(many), ask = window.fetch;
      window.fetch = (what, how) => (String(what).endsWith("/qos/subflows") ? Promise.resolve(new Response(body, { headers: { "Content-Type": "application/json" } })) : ask(what, how));
    }, [one, receiver] as const);
    await page.getByText("1 to 25 of 2001").waitFor();
    await page.getByText("And 92 subflows more, not drawn.").waitFor();
    expect(await page.locator("#subflows img, #subflows b").count()).toBe(0);
    expect(await page.locator("#subflows tr").count()).toBeLessThan(25 * (2 + 1 + 8) + 10);
    await connection(0).click();
    await drawn(24);
    expect(closest(await lines())).toBeGreaterThan(3);
    await connection(1).click();
    await expect.poll(async () => (await lines()).length).not.toBe(24);
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText("26 to 50 of 2001").waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => blameless(visit));
});
