// Uses the page as somebody does who has no pointer.

import type { Page } from "playwright-core";

export class Keys {
  constructor(private readonly page: Page) {}

  press(key: string): Promise<void> {
    return this.page.keyboard.press(key);
  }

  /** Presses Tab until what is called so has the focus. */
  tabTo(name: string | RegExp): Promise<void> {
    return this.go("Tab", name);
  }

  tabBackTo(name: string | RegExp): Promise<void> {
    return this.go("Shift+Tab", name);
  }

  /** Goes to a field and types. */
  async type(field: string, text: string): Promise<void> {
    if ((await this.name()) !== field) await this.tabTo(field);
    await this.page.keyboard.type(text);
  }

  /** The name of what has the focus, as a screen reader says it. */
  name(): Promise<string> {
    return this.page.evaluate(() => {
      const e = document.activeElement;
      const label = e instanceof HTMLInputElement || e instanceof HTMLSelectElement ? e.labels?.[0]?.textContent : e?.textContent;
      return (e?.getAttribute("aria-label") ?? label ?? "").trim();
    });
  }

  /** What the field with the focus holds. */
  value(): Promise<string> {
    return this.page.evaluate(() => (document.activeElement as HTMLInputElement).value);
  }

  private async go(key: string, name: string | RegExp): Promise<void> {
    const passed: string[] = [];
    for (let i = 0; i < 60; i++) {
      await this.press(key);
      const now = await this.name();
      if (typeof name === "string" ? now === name : name.test(now)) return;
      passed.push(now);
    }
    throw new Error(`${String(name)} is not reached by ${key}; passed ${passed.join(", ")}`);
  }
}
