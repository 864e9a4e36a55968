// A visit to the channels, while somebody watches them.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { desk, open, phone, shot, variable, type Opened } from "./browser";
import { tooSmall, tooWide, unreached } from "./everywhere";
import { Keys } from "./keys";
import { blameless, logIn } from "./visit";

const viewer = variable("SLUICE_VIEWER");

let visit: Opened;

beforeAll(async () => {
  visit = await open();
  await logIn(visit);
}, 30_000);

afterAll(() => visit?.close());

async function happen(what: "zap" | "cut" | "mend"): Promise<void> {
  const answer = await fetch(`${variable("SLUICE_HAPPEN")}/${what}`, { method: "POST" });
  expect([answer.status, await answer.text()]).toEqual([200, ""]);
}

const table = (name: string) => visit.page.getByRole("table", { name });
const row = (of: string, name: RegExp) => table(of).getByRole("row", { name });
const cell = (of: string, name: RegExp, n: number): Promise<string | null> => row(of, name).locator(":is(th, td)").nth(n - 1).textContent();

const channels = "Channels; choose a tree", egress = "By which viewers get channels", ingress = "By which channels come into the network";
const switches = "Switches of the tree", viewers = "Viewers by", budgets = "What channels take of links";

/** Waits until so many links are shown as part of a tree. */
const lit = (count: number): Promise<void> => expect.poll(() => visit.page.locator("line.route").count()).toBe(count);

describe("channels", { timeout: 120_000 }, () => {
  test("are on the air or not, and why", async () => {
    const { page } = visit;
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Channels" }).click();
    await page.getByText(/^2 of 4 channels are on the air\. 1 viewer watches by 2 of 2 egress gateways that are up, which have room for \d+ more\./).waitFor();
    const news = /The News/;
    await expect.poll(() => cell(channels, news, 3)).toMatch(/^live/);
    await expect.poll(() => cell(channels, news, 4)).toBe("1");
    expect(await cell(channels, news, 1)).toBe("1");
    expect(await cell(channels, news, 5)).toBe("1.00 Mbit/s");
    await expect.poll(() => cell(channels, news, 6)).toMatch(/^[\d.]+ [kM]bit\/s$/);
    expect(await cell(channels, news, 7)).toMatch(/^in1/);
    expect(await cell(channels, news, 8)).toBe("none");
    expect(await cell(channels, /The stage/, 3)).toMatch(/^waits for its producer/);
    expect(await cell(channels, /The stage/, 2)).toMatch(/stage, published by WHIP, with a password$/);
    expect(await cell(channels, /nowhere/, 8)).toMatch(/ingress gateway "none"/);
  });

  test("a tree is chosen by the keyboard, and shown in the picture", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    await keys.tabTo("Tree of The News");
    await keys.press("Enter");
    await page.getByRole("heading", { name: "Tree of The News" }).waitFor();
    await page.getByText(/^The News comes in at s1 port \d+ from in1, is on 1 link, with 1\.00 Mbit\/s kept on each, and is copied to 1 viewer\.$/).waitFor();
    await lit(1);
    expect(await page.locator(".switch.on-route").count()).toBe(2);
    expect(await page.locator(".host.on-route").count()).toBe(2);
    expect(await table(switches).locator("tbody th").allTextContents()).toEqual(["s1", "s4"]);
    expect(await cell(switches, /^s1 /, 3)).toBe("s4");
    expect(await cell(switches, /^s4 /, 4)).toBe("1");
  });

  test("budgets: the link of the tree is the fullest", async () => {
    await expect.poll(() => table(budgets).locator("tbody tr").count()).toBe(8);
    const first = (n: number): Promise<string | null> => table(budgets).locator("tbody tr").first().locator(":is(th, td)").nth(n - 1).textContent();
    await expect.poll(() => first(3)).toBe("1");
    expect(await first(1)).toMatch(/^s1 port/);
    expect(await first(2)).toMatch(/^s4 port/);
    expect([await first(4), await first(5), await first(6), await first(7)]).toEqual(["1.00 Mbit/s", "50.0 Mbit/s", "2.00 %", "100 Mbit/s"]);
  });

  test("the tree goes around a link that is cut, while one looks", async () => {
    await happen("cut");
    await lit(3);
    expect(await table(switches).locator("tbody th").allTextContents()).toEqual(["s1", "s2", "s3", "s4"]);
    await visit.page.getByText(/is on 3 links/).waitFor();
    await happen("mend");
  });

  test("viewers by gateway, and what their changes of channel took", async () => {
    const { page } = visit;
    const mine = new RegExp(`^${viewer.replaceAll(".", "\\.")}`);
    expect(await cell(viewers, mine, 2)).toMatch(/^out2port \d+$/);
    expect(await cell(viewers, mine, 3)).toBe("news");
    expect(await cell(viewers, mine, 5)).toBe("0");
    await happen("zap");
    await expect.poll(() => cell(viewers, mine, 3)).toBe("sports");
    await expect.poll(() => cell(viewers, mine, 5)).toBe("1"); // its gateway tells it a little later
    expect(await cell(viewers, mine, 6)).toMatch(/^[\d.]+ m?s$/);
    const zap = await cell(viewers, mine, 6);
    await expect.poll(() => cell(egress, /^out2 /, 4)).toBe("1");
    expect([await cell(egress, /^out2 /, 8), await cell(egress, /^out2 /, 9)]).toEqual([zap, zap]);
    expect(await cell(egress, /^out1 /, 8)).toBe("–");
    await page.getByText(`The last changes of channel of 1 viewer took ${zap} in the median, and ${zap} at most.`).waitFor();
    await page.getByText("No link carries The News: nobody watches it.").waitFor();
    await lit(0);
    await page.getByRole("button", { name: "Tree of Sports" }).press("Enter");
    await lit(2);
    await page.getByLabel("Gateway", { exact: true }).selectOption("out2");
    await table("Viewers by out2").waitFor();
    await shot(page, "channels");
    expect(await barriers(page)).toEqual([]);
  });

  test("gateways of both kinds, and one that drains", async () => {
    const { page } = visit;
    expect(await table(ingress).locator("tbody tr").count()).toBe(2);
    expect(await cell(ingress, /^in1 /, 3)).toMatch(/^s1 port \d+$/);
    const has = [await cell(ingress, /^in1 /, 4), await cell(ingress, /^in1 /, 5), await cell(ingress, /^in1 /, 6)];
    expect(has).toEqual(["2", "1", "2.00 Mbit/s"]); // the stage has nobody who publishes it
    const keys = new Keys(page);
    await page.getByRole("button", { name: "Drain out1" }).focus();
    await keys.press("Enter");
    await page.getByText("out1 takes no new viewers.").waitFor();
    await expect.poll(() => cell(egress, /^out1 /, 2)).toMatch(/^drains/);
    await expect.poll(() => cell(egress, /^out1 /, 5)).toBe("0");
    expect(await barriers(page)).toEqual([]);
    await page.getByRole("button", { name: "Let out1 take new viewers" }).press("Enter");
    await expect.poll(() => cell(egress, /^out1 /, 2)).toMatch(/^up/);
    await expect.poll(() => cell(egress, /^out1 /, 5)).not.toBe("0");
  });

  test("a channel is added by the keyboard, refused at the field, and removed", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    await page.getByRole("button", { name: "Add a channel" }).press("Enter");
    const form = page.getByRole("form", { name: "Add a channel" });
    await expect.poll(() => keys.name()).toBe("Name");
    await keys.type("Name", "Late News");
    await keys.tabTo("Number");
    expect(await keys.value()).toBe("5");
    await form.getByLabel("Number").fill("1");
    await keys.type("Bit rate", "2Mbit");
    await keys.type("Largest picture", "1080p");
    const source = form.getByLabel("Source address", { exact: true });
    await keys.type("Source address", "rtmp://192.0.2.9/live/topsecret");
    expect(await source.getAttribute("type")).toBe("password");
    await keys.type("Ingress gateway", "none");
    await keys.type("Password for viewers", " ticket ");
    expect(await form.getByLabel("Password for viewers").getAttribute("type")).toBe("password");
    await keys.tabTo("Show the source address and the passwords");
    await keys.press("Space");
    expect(await source.getAttribute("type")).toBe("text");
    expect(await source.inputValue()).toBe("rtmp://192.0.2.9/live/topsecret");
    await keys.press("Space");
    expect(await source.getAttribute("type")).toBe("password");
    await keys.tabTo("Add");
    await keys.press("Enter");
    await expect.poll(() => form.getByLabel("Name").getAttribute("aria-invalid")).toBe("true");
    expect(await page.locator("#channel-name-error").textContent()).toMatch(/lower-case letters/);
    await expect.poll(() => keys.name()).toBe("Name");
    await shot(page, "channel-refused");
    expect(await barriers(page)).toEqual([]);
    await page.setViewportSize(phone);
    expect(await tooWide(page)).toEqual([]);
    expect(await tooSmall(page)).toEqual([]);
    await shot(page, "phone-channel-form");
    await page.setViewportSize(desk);
    await form.getByLabel("Name").fill("late");
    await keys.press("Enter");
    await expect.poll(() => form.getByLabel("Number").getAttribute("aria-invalid")).toBe("true");
    await expect.poll(() => keys.name()).toBe("Number");
    await form.getByLabel("Number").fill("5");
    await form.getByLabel("Bit rate").fill("2MB");
    await form.getByLabel("Largest picture").fill("8k");
    await keys.press("Enter");
    await expect.poll(() => page.locator("#channel-bit_rate-error").textContent()).toMatch(/rate/);
    expect(await page.locator("#channel-picture-error").textContent()).toMatch(/1080p/);
    await form.getByLabel("Bit rate").fill("2Mbit");
    await form.getByLabel("Largest picture").fill("1080p");
    await keys.press("Enter");
    await page.getByText("The channel late was added.").waitFor();
    await expect.poll(() => keys.name()).toBe("The channel late was added.");
    await expect.poll(() => cell(channels, / late/, 2)).toMatch(/rtmp:\/\/192\.0\.2\.9.*with a password$/);
    expect(await page.content()).not.toContain("topsecret");
    await page.getByRole("button", { name: "Remove channel late" }).press("Enter");
    await page.getByRole("button", { name: "Remove it" }).press("Enter");
    await page.getByText("The channel late was removed.").waitFor();
    await expect.poll(() => row(channels, / late/).count()).toBe(0);
  });

  test("everything is reached by the keyboard", async () => expect(await unreached(visit.page)).toEqual([]));

  test("a phone is usable, light and dark", async () => {
    const { page } = visit;
    await page.setViewportSize(phone);
    expect(await tooWide(page)).toEqual([]);
    expect(await tooSmall(page)).toEqual([]);
    expect(await barriers(page)).toEqual([]);
    await shot(page, "phone-channels");
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await barriers(page)).toEqual([]);
    await page.setViewportSize(desk);
    await shot(page, "channels-dark");
    await page.emulateMedia({ colorScheme: "light" });
  });

  test("a viewer is removed, and its channel is copied no more", async () => {
    const { page } = visit;
    await page.getByRole("button", { name: `Remove viewer ${viewer}` }).press("Enter");
    await page.getByRole("button", { name: "Remove it" }).press("Enter");
    await page.getByText(/^The viewer .* was removed\.$/).waitFor();
    await page.getByText("No link carries Sports: nobody watches it.").waitFor();
  });

  test("events in words", async () => {
    const { page } = visit;
    await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: "Events" }).click();
    await page.getByLabel("Of", { exact: true }).selectOption("cinema");
    const list = page.getByRole("list", { name: "Events, newest first" });
    await list.getByText("Channel news is on the air, by in1").first().waitFor();
    await list.getByText(/^Viewer [0-9a-f]{8} of gateway out2 changed to sports in [\d.]+ m?s$/).first().waitFor();
    await list.getByText(/^Channel news is on 3 links: 3 more, \d fewer than before$/).first().waitFor();
    await list.getByText("The egress gateway out1 takes no new viewers").first().waitFor();
    await list.getByText(/^Viewer [0-9a-f]{8} of gateway out2 watches sports no longer$/).first().waitFor();
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => blameless(visit));
});
