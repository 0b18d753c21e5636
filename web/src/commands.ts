// Every key of the page in one table: what it does, when, and what the help says of it.

export interface Command {
  /** As shown and matched, e.g. "Mod+Shift+Enter"; Mod is Cmd on a Mac and Ctrl elsewhere. */
  keys: string;
  title: string;
  group: "Files" | "Sketch" | "Review" | "Save" | "Page";
  /** Returns false when there was nothing to do, and the key goes on to the editor. */
  run: () => boolean | void;
}

export const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

export function listenForKeys(commands: readonly Command[]): void {
  window.addEventListener(
    "keydown",
    (event) => {
      if (event.isComposing || document.querySelector("dialog[open]")) return;
      const command = commands.find((candidate) => matches(candidate.keys, event));
      if (!command || command.run() === false) return;
      event.preventDefault();
      event.stopPropagation();
    },
    { capture: true },
  );
}

function matches(keys: string, event: KeyboardEvent): boolean {
  // AltGr, which types letters, reports Ctrl and Alt on some systems.
  if (event.getModifierState("AltGraph")) return false;
  const parts = keys.split("+");
  const key = parts.pop()!;
  const mod = parts.includes("Mod");
  if ((IS_MAC ? event.metaKey : event.ctrlKey) !== mod) return false;
  if ((IS_MAC ? event.ctrlKey : event.metaKey) === true) return false;
  if (event.altKey !== parts.includes("Alt")) return false;
  if (key === "?") return event.key === "?" && !isTyping(event);
  if (event.shiftKey !== parts.includes("Shift")) return false;
  return event.key === key || event.code === codeOf(key);
}

/** Alt with a letter types another character on some keyboards, so the key itself counts. */
function codeOf(key: string): string {
  if (/^[A-Z]$/.test(key)) return `Key${key}`;
  return { ",": "Comma", ".": "Period" }[key] ?? key;
}

function isTyping(event: KeyboardEvent): boolean {
  const target = event.target as HTMLElement | null;
  return Boolean(target?.closest("input, textarea, [contenteditable=true]"));
}

/** "Mod+Shift+Enter" as the keys of this machine, one text a key. */
export function keyCaps(keys: string): string[] {
  const names: Record<string, string> = IS_MAC
    ? { Mod: "⌘", Alt: "⌥", Shift: "⇧", Enter: "↩", Backspace: "⌫", Escape: "Esc" }
    : { Mod: "Ctrl", Enter: "Enter", Backspace: "Bksp", Escape: "Esc" };
  return keys.split("+").map((key) => names[key] ?? key);
}
