// What every visit to the page begins with, and what it must never do.

import { expect } from "vitest";

import { token, type Opened } from "./browser";

/** Opens the page and gives it its token. */
export async function logIn({ page, line }: Opened): Promise<void> {
  await page.goto(line.url);
  const field = page.getByLabel("Token", { exact: true });
  await field.fill(token);
  await field.press("Enter");
  await page.getByText("Live", { exact: true }).waitFor();
}

/** Nobody else was asked, the token stood in no URL, no script failed. */
export function blameless({ faults, urls }: Opened): void {
  expect(faults).toEqual([]);
  expect(urls.filter((u) => u.includes(token))).toEqual([]);
}
