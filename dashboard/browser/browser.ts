// Chromium with the page, and what is asked of any page: nothing from elsewhere,
// no errors.

import { chromium, type Page } from "playwright-core";

import { axeSource } from "./axe";
import { relay, type Relay } from "./relay";

/** What the Go part of a test says to it. */
export const variable = (name: string): string => {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: these tests are started by go test ./test/dashboard`);
  return value;
};

export const token = variable("SLUICE_TOKEN");
const out = variable("SLUICE_OUT");

export interface Opened {
  page: Page;
  line: Relay;
  /** What went wrong: errors of scripts, breaches of the policy, requests to elsewhere. */
  faults: string[];
  /** All URLs that were asked for. */
  urls: string[];
  close(): Promise<void>;
}

export async function open(): Promise<Opened> {
  const line = await relay(variable("SLUICE_SERVER"));
  const browser = await chromium.launch({
    executablePath: variable("CHROMIUM"),
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  const page = await browser.newPage({ viewport: desk, colorScheme: "light" });
  page.setDefaultTimeout(60_000);
  await page.addInitScript({ content: axeSource });
  const faults: string[] = [];
  const urls: string[] = [];
  page.on("pageerror", (e) => faults.push(String(e)));
  page.on("console", (m) => {
    // That a request was refused is for the page to show, and for the tests to look at.
    if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) faults.push(m.text());
  });
  page.on("request", (r) => {
    urls.push(r.url());
    if (!r.url().startsWith(line.url) && !r.url().startsWith("data:")) faults.push(`asks ${r.url()}`);
  });
  const close = async (): Promise<void> => {
    await browser.close();
    await line.close();
  };
  return { page, line, faults, urls, close };
}

/** Beyond this wide a phone is none. */
export const phone = { width: 360, height: 740 };
export const desk = { width: 1280, height: 900 };

export const shot = (page: Page, name: string): Promise<Buffer> => page.screenshot({ path: `${out}/${name}.png`, fullPage: true });
