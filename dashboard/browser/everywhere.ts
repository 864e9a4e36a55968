// What holds for every view: it is usable without a pointer, and on a phone.

import type { Page } from "playwright-core";

/** What can be used but is not reached by the Tab key. */
export async function unreached(page: Page): Promise<string[]> {
  const names = await page.evaluate(() => {
    (document.activeElement as HTMLElement | null)?.blur();
    const all = [...document.querySelectorAll<HTMLElement>("a[href], button, input, select, [tabindex]")];
    const usable = all.filter((e) => e.tabIndex >= 0 && e.checkVisibility() && !e.hasAttribute("disabled"));
    usable.forEach((e, i) => e.setAttribute("data-stop", String(i)));
    return usable.map((e) => e.getAttribute("aria-label") ?? e.textContent ?? e.tagName);
  });
  const reached = new Set<string>();
  // The browser goes on where the last click was, and has stops of its own: what scrolls.
  for (let i = 0; i < 2 * names.length + 10 && reached.size < names.length; i++) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => document.activeElement?.getAttribute("data-stop"));
    if (stop) reached.add(stop);
  }
  await page.evaluate(() => document.querySelectorAll("[data-stop]").forEach((e) => e.removeAttribute("data-stop")));
  return names.filter((_, i) => !reached.has(String(i)));
}

/** What makes the page wider than the screen: then a phone would have to be moved sideways to read it. */
export const tooWide = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const wide = [...document.querySelectorAll("main *, header *")].filter((e) => e.getBoundingClientRect().right > width + 1 && !e.parentElement!.closest(".scroll, svg"));
    return wide.map((e) => `${e.tagName} ${e.className} ${e.textContent?.slice(0, 40)}`);
  });

/** What is too small for a finger: buttons and fields below 24 pixels (WCAG 2.5.8). */
export const tooSmall = (page: Page): Promise<string[]> =>
  page.evaluate(() => [...document.querySelectorAll<HTMLElement>("button, input, select, nav a")]
    .filter((e) => e.checkVisibility())
    .map((e) => ({ e, box: e.getBoundingClientRect() }))
    .filter(({ box }) => box.width < 24 || box.height < 24)
    .map(({ e }) => e.getAttribute("aria-label") ?? e.textContent ?? e.tagName));
