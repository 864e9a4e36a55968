// One visit to the page, in the order in which an operator might do things.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { open, server, shot, token, type Opened } from "./browser";

let visit: Opened;

beforeAll(async () => {
  visit = await open();
}, 30_000);

afterAll(() => visit?.close());

describe("the page", { timeout: 30_000 }, () => {
  test("asks for a token and refuses a wrong one", async () => {
    const { page } = visit;
    await page.goto(server);
    expect(page.url()).toBe(`${server}/ui/`);
    const field = page.getByLabel("Token", { exact: true });
    await field.fill("wrong");
    await field.press("Enter");
    await page.getByText("does not know this token").waitFor();
    await field.fill(token);
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByText("Live", { exact: true }).waitFor();
    expect(await page.evaluate(() => Object.keys(localStorage))).not.toContain("sluice-token");
  });

  test("draws the network with what its links carry", async () => {
    const { page } = visit;
    await page.getByRole("group", { name: /Topology: 3 switches, 2 links, 3 hosts/ }).waitFor();
    for (const name of ["s1", "s2", "s3"]) await page.getByRole("img", { name: new RegExp(`^Switch ${name}, connected, 1 hosts`) }).waitFor();
    const link = page.getByRole("img", { name: /^Link s1 port \d+, s2 port \d+/ });
    await expect.poll(() => link.getAttribute("aria-label"), { timeout: 20_000 }).toMatch(/s1 to s2: [5-9]\.\d+ Mbit\/s of 10\.0 Mbit\/s \(\d\d %\), latency \d+\.\d+ ms/);
    await shot(page, "topology-light");
  });

  test("has the same in tables", async () => {
    const { page } = visit;
    await page.getByRole("button", { name: "Tables" }).click();
    const rows = page.getByRole("table", { name: "Links" }).locator("tbody tr");
    expect(await rows.count()).toBe(4);
    expect(await page.getByRole("table", { name: "Hosts" }).locator("tbody tr").count()).toBe(3);
    expect(await rows.first().textContent()).toMatch(/s1 port \d+s2 port \d+.*ms/);
    await page.getByRole("button", { name: "Picture" }).click();
  });

  test("is light or dark, as the system or the operator wants it", async () => {
    const { page } = visit;
    const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await background();
    await page.emulateMedia({ colorScheme: "dark" });
    const dark = await background();
    expect(dark).not.toBe(light);
    await page.getByLabel("Theme").selectOption("light");
    expect(await background()).toBe(light);
    await page.getByLabel("Theme").selectOption("dark");
    await page.emulateMedia({ colorScheme: "light" });
    expect(await background()).toBe(dark);
    await page.reload();
    await page.getByRole("group", { name: /Topology: 3 switches/ }).waitFor();
    expect(await background()).toBe(dark);
    await shot(page, "topology-dark");
    expect(await barriers(page)).toEqual([]);
    await page.getByLabel("Theme").selectOption("system");
    expect(await barriers(page)).toEqual([]);
  });

  test("comes back when the controller does", async () => {
    const { page } = visit;
    await page.context().setOffline(true);
    await page.getByText("Not connected, trying again").waitFor();
    await page.context().setOffline(false);
    await page.getByText("Live", { exact: true }).waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => {
    expect(visit.faults).toEqual([]);
    expect(visit.urls.filter((u) => u.includes(token))).toEqual([]);
  });
});
