// Looks for what keeps people from using the page: missing names, weak contrast
// and the like, by the rules of WCAG as axe-core has them.

import axe from "axe-core";
import type { Page } from "playwright-core";

export const axeSource = axe.source;

export async function barriers(page: Page): Promise<string[]> {
  const results = await page.evaluate(() => (window as unknown as { axe: typeof axe }).axe.run());
  return results.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ")}`);
}
