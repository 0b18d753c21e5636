// The keys, in a dialog.

import type { Command } from "./commands";
import { h } from "./dom";
import { caps } from "./tabs";

export class Help {
  private readonly dialog: HTMLDialogElement;

  constructor(commands: readonly Command[]) {
    const groups = new Map<string, Command[]>();
    for (const command of commands) groups.set(command.group, [...(groups.get(command.group) ?? []), command]);
    const close = h("button", { type: "button", class: "quiet", onclick: () => this.dialog.close() }, "Close");
    this.dialog = h(
      "dialog",
      { class: "help", "aria-labelledby": "help-title" },
      h("div", { class: "help-head" }, h("h2", { id: "help-title" }, "Keys"), close),
      h("div", { class: "help-groups" }, ...[...groups].map(([name, members]) => group(name, members))),
      h("p", { class: "help-note" }, "In the editor, Tab indents; press Escape, then Tab, to leave it. Ctrl+Z takes decisions back too."),
    );
    this.dialog.addEventListener("click", (event) => event.target === this.dialog && this.dialog.close());
    document.body.append(this.dialog);
  }

  show(): void {
    this.dialog.showModal();
  }
}

function group(name: string, commands: readonly Command[]): HTMLElement {
  const rows = commands.map((command) => h("div", { class: "help-row" }, h("span", {}, command.title), caps(command.keys)));
  return h("section", {}, h("h3", {}, name), ...rows);
}
