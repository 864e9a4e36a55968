// One visit to the page, in the order in which an operator might do things.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { desk, open, phone, shot, token, variable, type Opened } from "./browser";
import { tooWide } from "./everywhere";
import { Keys } from "./keys";
import { blameless } from "./visit";

/** The hosts between which the traffic of the test goes. */
const source = variable("SLUICE_SOURCE");
const target = variable("SLUICE_TARGET");

let visit: Opened;

beforeAll(async () => {
  visit = await open();
}, 30_000);

afterAll(() => visit?.close());

/** A figure as the page writes it: 12.3 k. */
const figure = (text: string): number => Number.parseFloat(text) * (text.endsWith("k") ? 1e3 : text.endsWith("M") ? 1e6 : 1);

/** Waits until so many directions of links are shown as part of a path. */
const lit = (count: number): Promise<void> => expect.poll(() => visit.page.locator("line.route").count()).toBe(count);

describe("the page", { timeout: 120_000 }, () => {
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
    await expect.poll(() => link.getAttribute("aria-label")).toMatch(/s1 to s2: [1-9][\d.]* [kM]bit\/s of 10\.0 Mbit\/s \(\d\d %\), latency \d+\.\d+ ms/);
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
    await form.getByLabel("Rate", { exact: true }).fill("5Mbit");
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
    await form.getByLabel("Rate", { exact: true }).fill("2Mbit");
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
    const elsewhere = page.getByRole("heading", { name: "Topology" });
    await elsewhere.hover();
    await lit(0);
    await row.hover();
    await lit(2);
    await path.click();
    await elsewhere.hover();
    await lit(2);
    expect(await page.locator(".switch.on-route").count()).toBe(3);
    await shot(page, "flow");
    await path.click();
    await elsewhere.hover();
    await lit(0);
  });

  test("releases it again, after asking", async () => {
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

  test("refuses a class that no path can keep, with the figure, at the field", async () => {
    const { page } = visit;
    await page.getByRole("button", { name: "Request a class" }).click();
    const form = page.getByRole("form", { name: "Request a class" });
    await form.getByLabel("Name").fill("voice");
    await form.getByLabel("Guaranteed rate").fill("20Mbit");
    await form.getByRole("textbox", { name: "ipv4_src" }).fill(source);
    await form.getByRole("textbox", { name: "ipv4_dst" }).fill(target);
    await form.getByRole("button", { name: "Request", exact: true }).click();
    const rate = form.getByLabel("Guaranteed rate");
    await expect.poll(() => rate.getAttribute("aria-invalid")).toBe("true");
    expect(await page.locator("#class-min_rate-error").textContent()).toMatch(/hop s[12], port \d+: 20000000 bit\/s asked/);
    await shot(page, "class-refused");
    await rate.fill("2Mbit");
    await form.getByLabel("Latency").fill("1us");
    await form.getByRole("button", { name: "Request", exact: true }).click();
    await expect.poll(() => form.getByLabel("Latency").getAttribute("aria-invalid")).toBe("true");
    await form.getByRole("button", { name: "Cancel" }).click();
  });

  test("requests a class by the keyboard alone, and its queues count", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    await page.reload();
    await page.getByText("Live", { exact: true }).waitFor();
    await keys.tabTo("Skip to the network");
    await keys.press("Enter");
    await keys.tabTo(/^Switch s1/);
    await keys.press("ArrowRight");
    expect(await keys.name()).toMatch(/^Switch s2/);
    await keys.press("End");
    expect(await keys.name()).toMatch(/^Host/);
    await keys.tabTo("Request a class");
    await keys.press("Enter");
    await keys.type("Name", "voice");
    await keys.type("Guaranteed rate", "2Mbit");
    await keys.type("ipv4_src", source);
    await keys.type("ipv4_dst", target);
    await keys.tabTo("Add a condition");
    await keys.press("Enter");
    await keys.tabBackTo("Field");
    for (let i = 0; i < 20 && (await keys.value()) !== "udp_dst"; i++) await keys.press("ArrowDown");
    await keys.type("udp_dst", "5201");
    await keys.press("Enter");
    await page.getByText("The class voice was accepted.").waitFor();
    const queues = page.getByRole("table", { name: "Queues of class voice" }).locator("tbody tr");
    await expect.poll(() => queues.count()).toBe(3);
    const packets = async (): Promise<number[]> => (await queues.locator("td:nth-child(3)").allTextContents()).map(figure);
    await expect.poll(async () => Math.min(...(await packets()))).toBeGreaterThan(0);
    const before = await packets();
    await expect.poll(async () => (await packets()).every((n, i) => n > before[i]!)).toBe(true);
    await page.getByRole("row", { name: /^voice active .*fragments of IP packets have no ports/ }).waitFor();
    await keys.tabTo("s1 → s2 → s3");
    await keys.press("Space");
    await lit(2);
    await shot(page, "class-light");
    expect(await barriers(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: "dark" });
    await shot(page, "class-dark");
    expect(await barriers(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: "light" });
    await keys.tabTo("Release class voice");
    await keys.press("Enter");
    await keys.tabTo("Release it");
    await keys.press("Enter");
    await page.getByText("The class voice was released.").waitFor();
    await page.getByText("There is no class").waitFor();
  });

  test("draws what a link carried within the last hour", async () => {
    const { page } = visit;
    await page.getByRole("link", { name: "Links" }).click();
    await page.getByRole("link", { name: /^History of s1 port \d+ to s2/ }).press("Enter");
    const rate = page.getByRole("figure", { name: "Rate" });
    await expect.poll(() => rate.locator("canvas").count()).toBe(1);
    const used = rate.getByRole("row", { name: /^used/ });
    expect(await used.textContent()).toMatch(/[1-9][\d.]* [kM]bit\/s$/);
    expect(await rate.getByRole("row", { name: /^capacity/ }).textContent()).toMatch(/10\.0 Mbit\/s/);
    const drawn = await rate.locator("canvas").evaluate((c: HTMLCanvasElement) => new Set(c.getContext("2d")!.getImageData(0, 0, c.width, c.height).data).size);
    expect(drawn).toBeGreaterThan(10);
    expect(await page.getByRole("figure", { name: "Latency" }).getByRole("row", { name: /^latency/ }).textContent()).toMatch(/\d ms/);
    await shot(page, "links");
    expect(await barriers(page)).toEqual([]);
    await page.setViewportSize(phone);
    expect(await tooWide(page)).toEqual([]);
    expect(await barriers(page)).toEqual([]);
    await shot(page, "phone-chart");
    await page.setViewportSize(desk);
  });

  test("says which services the controller runs without", async () => {
    const { page } = visit;
    for (const [view, service] of [["Transfers", "SOS"], ["Channels", "Cinema"]] as const) {
      await page.getByRole("link", { name: view, exact: true }).click();
      await page.getByText(`This controller runs without the ${service} service.`).waitFor();
    }
    expect(await barriers(page)).toEqual([]);
  });

  test("comes back when the controller does", async () => {
    const { page, line } = visit;
    line.cut();
    await page.getByText("Not connected, trying again").waitFor();
    line.resume();
    await page.getByText("Live", { exact: true }).waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => {
    blameless(visit);
  });
});
