// A visit to the pages of the services, while agents carry a transfer and a device moves.

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { barriers } from "./axe";
import { desk, open, phone, shot, variable, type Opened } from "./browser";
import { tooSmall, tooWide, unreached } from "./everywhere";
import { Keys } from "./keys";
import { blameless, logIn } from "./visit";

const client = variable("SLUICE_CLIENT");
const web = variable("SLUICE_WEB");

let visit: Opened;

beforeAll(async () => {
  visit = await open();
  await logIn(visit);
}, 30_000);

afterAll(() => visit?.close());

/** Goes to a view, and waits until it is the one that is shown. */
async function go(view: string): Promise<void> {
  const link = visit.page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: view });
  await link.click();
  await expect.poll(() => link.getAttribute("aria-current")).toBe("page");
}

/** A figure as the page writes it: 12.3 MB. */
const figure = (text: string): number => {
  const [, number, prefix] = /^([\d.]+) ([kMG]?)/.exec(text) ?? [];
  return Number(number) * { "": 1, k: 1e3, M: 1e6, G: 1e9 }[prefix as "" | "k" | "M" | "G"];
};

describe("the services", { timeout: 120_000 }, () => {
  test("SOS: the session under way with its rate, and what it has carried", async () => {
    const { page } = visit;
    await go("Transfers");
    await page.getByText("It takes new connections").waitFor();
    const rows = page.getByRole("table", { name: "Sessions under way" }).locator("tbody tr");
    await expect.poll(() => rows.count()).toBe(2);
    const rate = async (): Promise<number> => Math.max(...(await rows.locator("td:nth-child(5)").allTextContents()).map((t) => figure(t) || 0));
    await expect.poll(rate).toBeGreaterThan(0);
    const carried = async (): Promise<number> => Math.max(...(await rows.locator("td:nth-child(6)").allTextContents()).map(figure));
    const before = await carried();
    await expect.poll(carried).toBeGreaterThan(before + 1e6);
    expect(await rows.first().textContent()).toContain("x → y");
    expect(await rows.first().textContent()).toContain(`${client}:`);
  });

  test("SOS: the course of a session, with its way by names", async () => {
    const { page } = visit;
    const fastest = page.getByRole("table", { name: "Sessions under way" }).locator("tbody tr").filter({ hasText: / MB/ });
    await fastest.first().getByRole("button", { name: /^Course of/ }).click();
    const course = page.getByRole("region", { name: "Course of the session" });
    await course.getByText("s1 → s2").waitFor();
    await expect.poll(() => course.locator("canvas").count()).toBe(1);
    await expect.poll(() => course.getByRole("row", { name: /^from the client/ }).textContent()).toMatch(/[1-9][\d.]* [kM]bit\/s/);
  });

  test("SOS: what agents know of their paths, and with what a session began", async () => {
    const { page } = visit;
    const path = page.getByRole("table", { name: "Paths between agents" }).getByRole("row", { name: /^x → y/ }).first();
    const cell = (n: number): Promise<string | null> => path.locator(`td:nth-child(${n})`).textContent();
    await expect.poll(() => cell(2), { timeout: 30_000 }).toMatch(/^[1-9][\d.]* [kM]bit\/s$/);
    expect(await cell(3)).toMatch(/^measured(; doubtful, tried at half)?shown /);
    await expect.poll(() => cell(4)).toMatch(/^[1-9][\d.]* [kM]bit\/sof [1-9][\d.]* [kM]bit\/s/);
    expect(await cell(5)).toMatch(/^[\d.]+ m?sbeyond [\d.]+ ms$/);
    expect(await cell(6)).toMatch(/ %$/);
    const session = page.getByRole("table", { name: "Sessions under way" }).locator("tbody tr").filter({ hasText: / MB/ }).first();
    const began = session.locator("td:nth-child(9) div").first();
    expect(await began.textContent()).toMatch(/^x [\d.]+ Mbit\/s$/);
    const course = page.getByRole("region", { name: "Course of the session" });
    const why = (await course.locator("dt", { hasText: /^x began$/ }).locator("+ dd").textContent())!;
    expect(why).toMatch(/^[\d.]+ Mbit\/s: (the path carries|nothing is known)/);
    expect(await began.getAttribute("title")).toBe(why);
  });

  test("SOS: agents and their load, and one that drains", async () => {
    const { page } = visit;
    const agent = page.getByRole("table", { name: "Agents and their load" }).getByRole("row", { name: /^x / });
    await agent.getByText(/^s1 port \d+$/).waitFor();
    await agent.getByText(/^2( of \d+)?$/).waitFor();
    await expect.poll(async () => figure((await agent.locator("td:nth-child(5)").textContent())!)).toBeGreaterThan(0);
    const drain = agent.getByRole("button", { name: "Drain x" });
    await drain.focus();
    await page.keyboard.press("Enter");
    await page.getByText("x takes no new sessions.").waitFor();
    await agent.getByText("drains").waitFor();
    await agent.getByRole("button", { name: "Let x take new sessions" }).click();
    await agent.getByText("up", { exact: true }).waitFor();
  });

  test("SOS: an agent is added by the keyboard, refused at the field, and removed", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    await page.getByRole("button", { name: "Add an agent" }).press("Enter");
    const form = page.getByRole("form", { name: "Add an agent" });
    await expect.poll(() => keys.name()).toBe("Name");
    await keys.type("Name", "x");
    await keys.type("Control API", "http://192.0.2.7:8440");
    await keys.type("Data addresses", "10.0.99.9");
    await keys.press("Enter");
    const url = form.getByLabel("Control API");
    await expect.poll(() => url.getAttribute("aria-invalid")).toBe("true");
    expect(await page.locator("#agent-url-error").textContent()).toMatch(/^https; /);
    await expect.poll(() => keys.name()).toBe("Control API");
    await url.fill("https://192.0.2.7:8440");
    await keys.press("Enter");
    await expect.poll(() => form.getByLabel("Name").getAttribute("aria-invalid")).toBe("true");
    await shot(page, "agent-refused");
    expect(await barriers(page)).toEqual([]);
    await form.getByLabel("Name").fill("spare");
    await keys.press("Enter");
    await page.getByText("The agent spare was added.").waitFor();
    await expect.poll(() => keys.name()).toBe("The agent spare was added.");
    const table = page.getByRole("table", { name: "Agents and their load" });
    await table.getByRole("row", { name: /^spare 10\.0\.99\.9/ }).waitFor();
    await table.getByRole("button", { name: "Remove agent x" }).press("Enter");
    await keys.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Remove agent x" });
    await dialog.getByText(/it carries \d+ sessions?: drain it first/).waitFor();
    expect(await barriers(page)).toEqual([]);
    await keys.press("Escape");
    await expect.poll(() => keys.name()).toBe("Remove agent x");
    await table.getByRole("button", { name: "Remove agent spare" }).press("Enter");
    await keys.tabBackTo("Also if it carries sessions: they end with a reset");
    await keys.press("Space");
    await keys.tabTo("Remove it");
    await keys.press("Enter");
    await page.getByText("The agent spare was removed.").waitFor();
    await expect.poll(() => table.getByRole("row", { name: /^spare/ }).count()).toBe(0);
  });

  test("SOS: the whitelist, added to and removed from", async () => {
    const { page } = visit;
    const table = page.getByRole("table", { name: "Connections that agents carry" });
    await table.getByRole("row", { name: new RegExp(`${web}.*9000`) }).waitFor();
    await page.getByRole("button", { name: "Add an entry" }).click();
    const form = page.getByRole("form", { name: "Add an entry" });
    await form.getByLabel("Name").fill("backup");
    await form.getByLabel("Clients").fill("10.0.0.300");
    await form.getByLabel("Servers").fill(web);
    await form.getByLabel("Ports").fill("22, 8000-8099");
    await form.getByRole("button", { name: "Add" }).click();
    await expect.poll(() => form.getByLabel("Clients").getAttribute("aria-invalid")).toBe("true");
    await form.getByLabel("Clients").fill("10.0.0.0/24");
    await form.getByRole("button", { name: "Add" }).click();
    await page.getByText("The entry backup was added.").waitFor();
    await table.getByRole("row", { name: /^backup 10\.0\.0\.0\/24 .*22 ?8000-8099 always/ }).waitFor();
    await page.getByRole("button", { name: "Remove entry backup" }).press("Enter");
    await page.getByRole("button", { name: "Remove it" }).press("Enter");
    await page.getByText("The entry backup was removed.").waitFor();
    await expect.poll(() => table.getByRole("row", { name: /^backup/ }).count()).toBe(0);
  });

  test("SOS: why connections went directly, and what helps", async () => {
    const { page } = visit;
    const rows = page.getByRole("table", { name: "Connections that went past the agents" }).locator("tbody tr");
    await expect.poll(() => rows.count()).toBe(1);
    expect(await rows.locator("th").textContent()).toMatch(/agent/);
    expect((await rows.locator("td:nth-child(2)").textContent())!.length).toBeGreaterThan(10);
    expect(await rows.locator("td:nth-child(3)").textContent()).toBe("1");
  });

  test("SOS: history with reasons", async () => {
    const { page } = visit;
    const rows = page.getByRole("table", { name: "Sessions that have ended" }).locator("tbody tr");
    await expect.poll(() => rows.count()).toBe(3); // the two that were carried, and the one that was not
    for (const how of await rows.locator("td:nth-child(5)").allTextContents()) expect(how).toMatch(/closed|reset|agent/);
    expect(Math.max(...(await rows.locator("td:nth-child(6)").allTextContents()).map(figure))).toBeGreaterThan(1e6);
    await shot(page, "sos");
    expect(await barriers(page)).toEqual([]);
  });

  test("devices: where, by which access, moves and their gaps", async () => {
    const { page } = visit;
    await go("Devices");
    const device = page.getByRole("table", { name: "Devices" }).getByRole("row", { name: /^phone/ });
    const cell = (n: number): Promise<string | null> => device.locator(`td:nth-child(${n})`).textContent();
    await expect.poll(() => cell(4)).toMatch(/^edge2 port \d+since .*root → edge2$/);
    expect(await cell(5)).toMatch(/^interface 2 of 2 \(/);
    const moves = page.getByRole("table", { name: "Attachments and moves" }).locator("tbody tr");
    const move = moves.filter({ hasText: /edge1 port \d+edge2 port \d+/ });
    await move.first().waitFor();
    expect(await move.first().locator("td:nth-child(6)").textContent()).toMatch(/^[\d.]+ m?s/);
    await shot(page, "devices");
    expect(await barriers(page)).toEqual([]);
    const known = await moves.count();
    expect((await fetch(variable("SLUICE_MOVE"), { method: "POST" })).status).toBe(200);
    await expect.poll(() => cell(4)).toMatch(/^edge1 port \d+/);
    await expect.poll(() => moves.count()).toBeGreaterThan(known);
    expect(await moves.first().textContent()).toMatch(/edge2 port \d+edge1 port \d+/);
  });

  test("devices: a place is prepared and a device moved there, by the keyboard", async () => {
    const { page } = visit;
    const keys = new Keys(page);
    const device = page.getByRole("table", { name: "Devices" }).getByRole("row", { name: /^phone/ });
    const where = device.locator("td:nth-child(4)");
    const moves = page.getByRole("table", { name: "Attachments and moves" }).locator("tbody tr");
    const [, there] = /(edge2 port \d+)/.exec((await moves.filter({ hasText: /edge2 port \d+edge1/ }).first().textContent())!)!;
    const port = there!.split(" ").at(-1)!;

    await device.getByRole("button", { name: "Prepare a place for phone" }).press("Enter");
    const prepare = page.getByRole("form", { name: "Prepare a place for phone" });
    await expect.poll(() => keys.name()).toBe("Switch");
    await keys.tabTo("Prepare");
    await keys.press("Enter");
    await expect.poll(() => prepare.getByLabel("Switch").getAttribute("aria-invalid")).toBe("true");
    expect(await barriers(page)).toEqual([]);
    await expect.poll(() => keys.name()).toBe("Switch");
    await keys.type("Switch", "edge2");
    await keys.tabTo("Port");
    await prepare.getByRole("option", { name: new RegExp(`^${port} \\(`) }).waitFor({ state: "attached" });
    await keys.type("Port", port);
    await keys.tabTo("Interface");
    await keys.type("Interface", "interface 2");
    await shot(page, "device-prepare");
    await keys.tabTo("Prepare");
    await keys.press("Enter");
    await page.getByText(`${there} is prepared for phone.`).waitFor();
    await expect.poll(() => device.locator("td:nth-child(6)").textContent()).toMatch(new RegExp(`^${there}.*prepared$`));
    await device.getByRole("button", { name: "Take back place prepared for phone" }).press("Enter");
    await keys.press("Enter");
    await expect.poll(() => device.locator("td:nth-child(6)").textContent()).not.toMatch(/prepared/);

    await device.getByRole("button", { name: "Move phone" }).press("Enter");
    const form = page.getByRole("form", { name: "Move phone" });
    await expect.poll(() => keys.name()).toBe("Switch");
    await keys.type("Switch", "edge2");
    await keys.tabTo("Port");
    await form.getByRole("option", { name: new RegExp(`^${port} \\(`) }).waitFor({ state: "attached" });
    await keys.type("Port", port);
    await keys.tabTo("Interface");
    await keys.type("Interface", "interface 2");
    await keys.tabTo("Stays there for");
    expect(await keys.value()).toBe("10m");
    expect(await barriers(page)).toEqual([]);
    await keys.press("Enter");
    await page.getByText(`phone was told to go on at ${there}, by interface 2 of 2`).waitFor();
    await page.getByText("phone has done so.").waitFor();
    await expect.poll(() => where.textContent()).toMatch(new RegExp(`^${there}`));
    expect(await moves.first().textContent()).toMatch(/edge1 port \d+edge2 port \d+/);
  });

  test("rules by switch and owner", async () => {
    const { page } = visit;
    await go("Rules");
    await page.getByLabel("Switch", { exact: true }).selectOption({ label: await optionOf("Switch", /^s1 /) });
    await page.getByLabel("Owner", { exact: true }).selectOption({ label: await optionOf("Owner", /^sos /) });
    const table = page.getByRole("table", { name: "Rules of sos in s1" });
    const rules = table.locator("tbody tr");
    expect(await rules.count()).toBeGreaterThan(2);
    for (const owner of await rules.locator("th").allTextContents()) expect(owner).toMatch(/^sos/);
    expect(Math.max(...(await rules.locator("td:nth-child(6)").allTextContents()).map((t) => Number.parseFloat(t)))).toBeGreaterThan(0);
  });

  test("a packet is traced by form, and refused by form", async () => {
    const { page } = visit;
    const form = page.getByRole("form", { name: "Trace a packet" });
    await form.getByLabel("From").fill(client);
    await form.getByLabel("To", { exact: true }).fill(web);
    await form.getByLabel("Destination port").fill("9000");
    await form.getByLabel("More fields").fill("tcp_flags=syn");
    await form.getByLabel("More fields").press("Enter");
    const steps = page.getByRole("list", { name: "Steps of the packet" });
    await steps.getByText(/a rule of sos/).first().waitFor();
    expect(await steps.locator("li").first().textContent()).toMatch(/^s1, in by port \d+/);
    expect(await steps.textContent()).not.toMatch(/\b0{8}[0-9a-f]{8}\b/);
    await shot(page, "rules");
    expect(await barriers(page)).toEqual([]);
    await form.getByLabel("Comes into switch").fill("s9");
    await form.getByLabel("Comes into switch").press("Enter");
    await form.getByRole("alert").getByText(/s9/).waitFor();
  });

  test("events in words, with names", async () => {
    const { page } = visit;
    await go("Events");
    const list = page.getByRole("list", { name: "Events, newest first" });
    await list.getByText(/^Device phone moved from edge2 port \d+ to edge1 port \d+; its rules took /).first().waitFor();
    await list.getByText(/^Agents x and y carry /).first().waitFor();
    await list.getByText("Whitelist entry backup was added").waitFor();
    await list.getByText("Switch s1 connected").waitFor();
    await list.getByText(/^Link s1 port \d+ to s2 port \d+ was found$/).waitFor();
    await page.getByLabel("Of", { exact: true }).selectOption("handover");
    expect(await list.getByText(/^Switch/).count()).toBe(0);
    for (const said of await list.locator(".said").allTextContents()) expect(said).not.toMatch(/[0-9a-f]{16}/);
    await shot(page, "events");
    expect(await barriers(page)).toEqual([]);
  });

  test("a session is ended by the keyboard", async () => {
    const { page } = visit;
    await go("Transfers");
    const rows = page.getByRole("table", { name: "Sessions under way" }).locator("tbody tr");
    await rows.getByRole("button", { name: /^End session/ }).first().press("Enter");
    await page.getByRole("button", { name: "End it" }).press("Enter");
    await page.getByText(/^The session of .* was ended\.$/).waitFor();
    const latest = page.getByRole("table", { name: "Sessions that have ended" }).locator("tbody tr").first();
    await expect.poll(() => latest.locator("td:nth-child(5)").textContent()).toBe("aborted");
  });

  test("an API that does not answer is told of, where it is missed", async () => {
    const { page, line } = visit;
    line.cut();
    await page.locator("#sessions").getByText("Not up to date: the controller cannot be reached.").waitFor();
    line.resume();
    await expect.poll(() => page.getByText("Not up to date").count()).toBe(0);
    await page.getByText("Live", { exact: true }).waitFor();
  });

  test("MobilityFirst: names, where they are, and a path between them", async () => {
    const { page } = visit;
    await go("Names");
    const names = page.getByRole("table", { name: /^Names that have said hello/ }).locator("tbody tr");
    await expect.poll(() => names.count()).toBeGreaterThanOrEqual(3);
    expect(await names.allTextContents()).toEqual(expect.arrayContaining([expect.stringContaining("s1 port"), expect.stringContaining("s2 port")]));
    const paths = page.getByRole("table", { name: /^Paths for which/ }).locator("tbody tr").filter({ hasText: /s1, s2|s2, s1/ });
    await expect.poll(() => paths.count()).toBeGreaterThan(0);
  });

  test("MobilityFirst: a storage node, what it keeps, and that it drains", async () => {
    const { page } = visit;
    const node = page.getByRole("table", { name: /^Storage nodes, compute nodes/ }).locator("tbody tr");
    await expect.poll(() => node.textContent()).toMatch(/depot.*up.*s1 port.*keeps 2 chunks for 1 name/);
    const kept = page.getByRole("table", { name: /^Chunks that storage nodes keep/ }).locator("tbody tr");
    await expect.poll(() => kept.textContent()).toMatch(/depot2/);
    await page.getByRole("button", { name: "Drain depot" }).click();
    await expect.poll(() => node.textContent()).toContain("drains");
    await page.getByText("depot takes no new paths.").waitFor();
    await page.getByRole("button", { name: /^Resume: let depot/ }).click();
    await expect.poll(() => node.textContent()).not.toContain("drains");
  });

  const views = ["Network", "Links", "Transfers", "Devices", "Channels", "Names", "Rules", "Events"];

  test.each(views)("%s: everything is reached by the keyboard", async (view) => {
    await go(view);
    await visit.page.locator("main .panel").first().waitFor();
    expect(await unreached(visit.page)).toEqual([]);
  });

  test.each(views)("%s: a phone is usable, light and dark", async (view) => {
    const { page } = visit;
    await page.setViewportSize(phone);
    await go(view);
    await expect.poll(() => page.getByText("Asking the controller.").count()).toBe(0);
    expect(await tooWide(page)).toEqual([]);
    expect(await tooSmall(page)).toEqual([]);
    expect(await barriers(page)).toEqual([]);
    await shot(page, `phone-${view.toLowerCase()}`);
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await barriers(page)).toEqual([]);
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize(desk);
  });

  test("asked nobody else, never with the token in a URL, and had no errors", () => blameless(visit));
});

async function optionOf(select: string, label: RegExp): Promise<string> {
  const options = visit.page.getByLabel(select, { exact: true }).locator("option", { hasText: label });
  await options.first().waitFor({ state: "attached" });
  return (await options.first().textContent())!;
}
