// One visit to the page, in the order in which an operator might do things.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { open, shot, target, token, type Opened } from "./browser";

let visit: Opened;

beforeAll(async () => {
  visit = await open();
}, 30_000);

afterAll(() => visit?.close());

describe("the page", { timeout: 30_000 }, () => {
  test("asks for a token and refuses a wrong one", async () => {
    const { page, line } = visit;
    await page.goto(line.url);
    expect(page.url()).toBe(`${line.url}/ui/`);
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
    for (const name of ["s1", "s2", "s3"]) await page.getByRole("img", { name: new RegExp(`^Switch ${name}, connected, 1 host$`) }).waitFor();
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

  test("says at the field what is wrong with a request", async () => {
    const { page } = visit;
    await page.getByRole("button", { name: "Request a critical flow" }).click();
    const form = page.getByRole("form", { name: "Request a critical flow" });
    await form.getByLabel("Name").fill("no spaces, please");
    await form.getByLabel("Rate", { exact: true }).fill("5M");
    await form.getByRole("textbox", { name: "ipv4_src" }).fill("10.0.0.300");
    await form.getByRole("button", { name: "Request" }).click();
    await form.getByText("an IPv4 address like 10.0.0.7").waitFor();
    const name = form.getByLabel("Name");
    expect(await name.getAttribute("aria-invalid")).toBe("true");
    expect(await form.getByRole("textbox", { name: "ipv4_src" }).getAttribute("aria-invalid")).toBe("true");
    expect(await form.getByLabel("Rate", { exact: true }).getAttribute("aria-invalid")).toBe("false");
    expect(await name.evaluate((e) => e === document.activeElement)).toBe(true);
    expect(await page.locator(`#${await name.getAttribute("id")}-error`).textContent()).toMatch(/letters, digits/);
    await shot(page, "refused");
    await form.getByRole("button", { name: "Cancel" }).click();
  });

  test("places a critical flow, and shows its path", async () => {
    const { page } = visit;
    await page.getByRole("button", { name: "Request a critical flow" }).click();
    const form = page.getByRole("form", { name: "Request a critical flow" });
    await form.getByLabel("Name").fill("feed");
    await form.getByLabel("Rate", { exact: true }).fill("2M");
    await form.getByRole("textbox", { name: "ipv4_dst" }).fill(target);
    await form.getByRole("button", { name: "Add a condition" }).click();
    await form.getByRole("combobox", { name: "Field" }).last().selectOption("udp_dst");
    await form.getByRole("textbox", { name: "udp_dst" }).fill("5201");
    await form.getByRole("button", { name: "Request" }).click();
    await page.getByText("The traffic feed is critical from now on.").waitFor();
    const row = page.getByRole("table", { name: /^Flows of it/ }).getByRole("row", { name: /udp .*5201 feed accepted/ });
    await row.waitFor();
    const path = row.getByRole("button");
    expect(await path.textContent()).toBe("s1 → s2 → s3");
    expect(await page.locator("line.route").count()).toBe(0);
    await row.hover();
    expect(await page.locator("line.route").count()).toBe(2);
    await path.click();
    await page.getByRole("heading", { name: "Topology" }).hover();
    expect(await page.locator("line.route").count()).toBe(2);
    expect(await page.locator(".switch.on-route").count()).toBe(3);
    await shot(page, "flow");
    await path.click();
    await page.getByRole("heading", { name: "Topology" }).hover();
    expect(await page.locator("line.route").count()).toBe(0);
  });

  test("releases it again, by the keyboard alone", async () => {
    const { page } = visit;
    const release = page.getByRole("button", { name: "Release critical flow feed" });
    await release.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").getByRole("button", { name: "Release it" }).waitFor();
    await page.keyboard.press("Escape");
    expect(await release.evaluate((e) => e === document.activeElement)).toBe(true);
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    await page.getByText("The critical flow feed was released.").waitFor();
    await page.getByText("No traffic is critical.").waitFor();
  });

  test("comes back when the controller does", async () => {
    const { page, line } = visit;
    line.cut();
    await page.getByText("Not connected, trying again").waitFor();
    line.resume();
    await page.getByText("Live", { exact: true }).waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => {
    expect(visit.faults).toEqual([]);
    expect(visit.urls.filter((u) => u.includes(token))).toEqual([]);
  });
});
