// Light or dark: as the system says, until the person chooses.

const KEY = "etude.appearance";

type Appearance = "light" | "dark";

function system(): Appearance {
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function appearance(): Appearance {
  const chosen = localStorage.getItem(KEY);
  return chosen === "light" || chosen === "dark" ? chosen : system();
}

export function showAppearance(): void {
  document.documentElement.dataset.appearance = appearance();
}

/** Choose the other one; choosing what the system says follows the system again. */
export function toggleAppearance(): void {
  const other = appearance() === "dark" ? "light" : "dark";
  if (other === system()) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, other);
  showAppearance();
}

export function followSystem(): void {
  showAppearance();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showAppearance);
}
