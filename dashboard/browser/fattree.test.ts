// A visit to a network of 45 switches: a fat tree.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { desk, open, phone, shot, variable, type Opened } from "./browser";
import { Keys } from "./keys";
import { blameless, logIn } from "./visit";

const switches = Number(variable("SLUICE_SWITCHES"));
const hosts = Number(variable("SLUICE_HOSTS"));

let visit: Opened;

beforeAll(async () => {
  visit = await open();
  await logIn(visit);
}, 30_000);

afterAll(() => visit?.close());

interface Box {
  text: string;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** Where the words of the picture stand on the screen; each has at least two pixels of space beside it. */
const words = (): Promise<Box[]> => visit.page.locator(".picture svg text").evaluateAll((all) => all.map((e) => {
  const { left, right, top, bottom } = e.getBoundingClientRect();
  return { text: e.textContent ?? "", left, right, top: top + 2, bottom: bottom - 2 };
}));

const collisions = (all: Box[]): string[] => all.flatMap((a, i) => all.slice(i + 1)
  .filter((b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
  .map((b) => `${a.text} and ${b.text}`));

const named = (all: Box[]): string[] => all.map((w) => w.text).filter((t) => /^(core|agg|edge)/.test(t));

describe("a fat tree", { timeout: 120_000 }, () => {
  test("stands in layers, edges below, each with its hosts", async () => {
    const { page } = visit;
    await page.getByRole("group", { name: new RegExp(`^Topology: ${switches} switches, 108 links, ${hosts} hosts`) }).waitFor();
    const heights = async (name: string): Promise<number[]> => {
      const boxes = await Promise.all((await page.getByRole("img", { name: new RegExp(`^Switch ${name}`) }).all()).map((s) => s.locator("rect").boundingBox()));
      return [...new Set(boxes.map((b) => Math.round(b!.y)))];
    };
    const [core, agg, edge] = [await heights("core"), await heights("agg"), await heights("edge")];
    expect([core.length, agg.length, edge.length]).toEqual([1, 1, 1]);
    expect(core[0]!).toBeLessThan(agg[0]!);
    expect(agg[0]!).toBeLessThan(edge[0]!);
  });

  test("is readable: all 45 names, and no label over another", async () => {
    const all = await words();
    expect(named(all).length).toBe(switches);
    expect(collisions(all)).toEqual([]);
    await shot(visit.page, "fattree");
    expect(await barriers(visit.page)).toEqual([]);
  });

  test("shows more when it is enlarged, by keys, and moves", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    await page.getByRole("img", { name: /^Switch core1,/ }).focus();
    const svg = page.locator(".picture svg");
    const box = (): Promise<number[]> => svg.evaluate((e) => e.getAttribute("viewBox")!.split(" ").map(Number));
    const before = await box();
    const figures = async (): Promise<number> => (await words()).filter((w) => /ms|bit\/s/.test(w.text)).length;
    for (let i = 0; i < 3; i++) await keys.press("+");
    expect((await box())[2]!).toBeLessThan(before[2]! / 3);
    expect(await figures()).toBeGreaterThan(0);
    expect(collisions(await words())).toEqual([]);
    await shot(page, "fattree-enlarged");
    const x = (await box())[0]!;
    await keys.press("Shift+ArrowRight");
    expect((await box())[0]!).toBeGreaterThan(x);
    await keys.press("End");
    expect(await keys.name()).toMatch(/^3 hosts at edge/);
    const seen = await page.evaluate(() => {
      const host = document.activeElement!.getBoundingClientRect(), svg = document.querySelector(".picture svg")!.getBoundingClientRect();
      return host.left >= svg.left && host.right <= svg.right && host.top >= svg.top && host.bottom <= svg.bottom;
    });
    expect(seen).toBe(true);
    await keys.press("0");
    expect(await box()).toEqual(before);
  });

  test("is moved and enlarged by the pointer", async () => {
    const { page } = visit;
    const svg = page.locator(".picture svg");
    const box = (): Promise<number[]> => svg.evaluate((e) => e.getAttribute("viewBox")!.split(" ").map(Number));
    await page.getByRole("button", { name: "Zoom in" }).click();
    await page.getByRole("button", { name: "Zoom in" }).click();
    const [x, y] = await box();
    const at = (await svg.boundingBox())!;
    await page.mouse.move(at.x + at.width / 2, at.y + at.height / 2);
    await page.mouse.down();
    await page.mouse.move(at.x + at.width / 2 - 100, at.y + at.height / 2 - 30, { steps: 5 });
    await page.mouse.up();
    const [movedX, movedY] = await box();
    expect(movedX!).toBeGreaterThan(x!);
    expect(movedY!).toBeGreaterThan(y!);
    await page.getByRole("button", { name: "Whole picture" }).click();
  });

  test("is readable on a phone", async () => {
    const { page } = visit;
    await page.setViewportSize(phone);
    await expect.poll(() => page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(phone.width);
    expect(collisions(await words())).toEqual([]);
    await shot(page, "fattree-phone");
    for (let i = 0; i < 4; i++) await page.getByRole("button", { name: "Zoom in" }).click();
    const all = await words();
    expect(named(all).length).toBeGreaterThan(2);
    expect(collisions(all)).toEqual([]);
    await shot(page, "fattree-phone-enlarged");
    expect(await barriers(page)).toEqual([]);
    await page.setViewportSize(desk);
  });

  test("its 216 links and 54 hosts are paged", async () => {
    const { page } = visit;
    await page.getByRole("link", { name: "Links", exact: true }).click();
    const rows = page.getByRole("table", { name: "Links" }).locator("tbody tr");
    await expect.poll(() => rows.count()).toBe(25);
    await page.getByText("1 to 25 of 216").waitFor();
    await page.getByRole("button", { name: "Next" }).press("Enter");
    await page.getByText("26 to 50 of 216").waitFor();
    await page.getByRole("link", { name: "Network", exact: true }).click();
    await page.getByRole("button", { name: "Tables" }).click();
    await page.getByText(`1 to 25 of ${hosts}`).waitFor();
    await page.getByText(`1 to 25 of ${switches}`).waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => blameless(visit));
});
