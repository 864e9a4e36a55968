// Light or dark: as the system says, unless it is chosen here.

import { useState } from "preact/hooks";

const key = "sluice-theme";
const choices = ["system", "light", "dark"] as const;
type Theme = (typeof choices)[number];

const saved = (): Theme => choices.find((c) => c === localStorage.getItem(key)) ?? "system";

/** Gives the page the theme that was chosen earlier. */
export function restoreTheme(theme: Theme = saved()): void {
  document.documentElement.dataset["theme"] = theme;
}

export function ThemeChoice() {
  const [theme, setTheme] = useState(saved);
  const choose = (value: Theme): void => {
    localStorage.setItem(key, value);
    restoreTheme(value);
    setTheme(value);
  };
  return (
    <label class="inline">
      Theme
      <select value={theme} onChange={(e) => choose(e.currentTarget.value as Theme)}>
        {choices.map((c) => (
          <option key={c} value={c}>{c}</option>
        ))}
      </select>
    </label>
  );
}
