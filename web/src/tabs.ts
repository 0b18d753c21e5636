// The open files as tabs, the editor of the active one, and what to do when none is open.

import { h, fill, icon } from "./dom";
import type { Document } from "./document";
import { keyCaps } from "./commands";
import type { Workbench } from "./workbench";

export class Tabs {
  readonly element: HTMLElement;
  private readonly list = h("div", { class: "tabs", role: "tablist", "aria-label": "Open files" });
  private readonly stage = h("div", { class: "stage" });
  private readonly empty = emptyState();
  private drawn: string | null = null;

  constructor(
    private readonly bench: Workbench,
    reviewBar: HTMLElement,
  ) {
    this.element = h("main", { class: "editor" }, this.list, this.stage, reviewBar);
    bench.changed.listen(() => this.render());
    this.render();
  }

  private render(): void {
    this.renderTabs();
    for (const document of this.bench.documents) {
      if (!document.element.parentElement) this.stage.append(document.element);
      document.element.classList.toggle("is-active", document === this.bench.active);
      document.element.toggleAttribute("inert", document !== this.bench.active);
    }
    if (this.bench.active) this.empty.remove();
    else if (!this.empty.parentElement) this.stage.append(this.empty);
  }

  private renderTabs(): void {
    const wanted = this.bench.documents.map((document) => this.key(document)).join("\n");
    if (wanted === this.drawn) return;
    this.drawn = wanted;
    const hadFocus = this.list.contains(document.activeElement);
    fill(this.list, ...this.bench.documents.map((document) => this.tab(document)));
    this.list.hidden = this.bench.documents.length === 0;
    const active = this.list.querySelector<HTMLElement>("[aria-selected=true]");
    active?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (hadFocus) active?.focus();
  }

  private key(document: Document): string {
    return [document.path, document === this.bench.active, document.dirty, document.phase, document.isNew].join("|");
  }

  private tab(document: Document): HTMLElement {
    const isActive = document === this.bench.active;
    const name = document.path.slice(document.path.lastIndexOf("/") + 1);
    const state = stateOf(document);
    return h(
      "div",
      {
        class: `tab ${state.kind}`,
        role: "tab",
        "aria-selected": String(isActive),
        tabindex: isActive ? 0 : -1,
        title: `${document.path}${state.says ? `: ${state.says}` : ""}`,
        "aria-label": `${document.path}${state.says ? `, ${state.says}` : ""}`,
        onclick: () => this.bench.show(document),
        onauxclick: (event: MouseEvent) => event.button === 1 && this.bench.close(document),
        onkeydown: (event: KeyboardEvent) => this.onKey(event, document),
      },
      h("span", { class: "tab-name" }, name),
      h(
        "button",
        {
          type: "button",
          class: "tab-close",
          tabindex: -1,
          "aria-label": `Close ${document.path}`,
          onclick: (event: MouseEvent) => {
            event.stopPropagation();
            this.bench.close(document);
          },
        },
        h("span", { class: "dot" }),
        icon("close"),
      ),
    );
  }

  private onKey(event: KeyboardEvent, document: Document): void {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      this.bench.showNext(event.key === "ArrowRight" ? 1 : -1, { focus: false });
    } else if (event.key === "Enter" || event.key === " ") {
      this.bench.show(document);
      document.view.focus();
    } else if (event.key === "Delete") {
      this.bench.close(document);
    } else return;
    event.preventDefault();
  }
}

function stateOf(document: Document): { kind: string; says: string } {
  if (document.phase === "merging") return { kind: "is-merging", says: "merging" };
  if (document.phase === "reviewing") return { kind: "is-reviewing", says: "changes to review" };
  if (document.isNew) return { kind: "is-dirty", says: "new, not saved" };
  if (document.dirty) return { kind: "is-dirty", says: "not saved" };
  return { kind: "", says: "" };
}

function emptyState(): HTMLElement {
  const step = (keys: string, text: string) => h("li", {}, caps(keys), h("span", {}, text));
  return h(
    "div",
    { class: "empty" },
    h("h1", {}, "Merge a sketch into your code"),
    h("p", {}, "Paste what a chat model wrote, gaps and all. etude finds where it belongs; you decide each change."),
    h(
      "ol",
      {},
      step("Mod+P", "Open the file to change. A reply that names its files opens them itself."),
      step("Mod+I", "Paste the reply or a rough block of code."),
      step("Mod+Enter", "Merge it, then accept or reject each change."),
    ),
  );
}

export function caps(keys: string): HTMLElement {
  return h("span", { class: "caps" }, ...keyCaps(keys).map((key) => h("kbd", {}, key)));
}
