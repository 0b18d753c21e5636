// The bar over the editor while changes wait: where one is, and what can be decided.

import { fill, h, icon, plural, type Child } from "./dom";
import type { Document } from "./document";
import { currentIndex, decide, step } from "./review";
import { caps } from "./tabs";
import type { Workbench } from "./workbench";

export class ReviewBar {
  readonly element = h("div", { class: "review-bar", role: "toolbar", "aria-label": "Review of the changes" });
  private drawn = "";

  constructor(private readonly bench: Workbench) {
    this.element.hidden = true;
    bench.changed.listen(() => this.render());
  }

  private render(): void {
    const document = this.bench.active;
    const count = document?.undecided ?? 0;
    const at = document && count ? currentIndex(document.view.state) : -1;
    const isDecided = Boolean(document && this.isDecided(document));
    const next = isDecided ? this.bench.nextOpenRun?.path : undefined;
    const key = `${document?.path}|${document?.phase}|${count}|${at}|${isDecided}|${next}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const isReviewing = document?.phase === "reviewing" && count > 0;
    this.element.hidden = !isReviewing && !isDecided;
    if (document && isReviewing) fill(this.element, ...this.parts(document, at, count));
    if (document && isDecided) fill(this.element, ...this.decidedParts(document, next));
  }

  /** All its hunks have their decision, and it is not saved yet. */
  private isDecided(document: Document): boolean {
    const isMerged = this.bench.runs.some((run) => run.path === document.path && run.phase === "merged" && !run.saved);
    return isMerged && document.phase === "idle" && document.dirty && !document.readOnly;
  }

  private decidedParts(document: Document, next: string | undefined): Child[] {
    const save = button("Save", "Mod+S", () => void this.bench.save(document), "Save", caps("Mod+S"));
    const name = next?.slice(next.lastIndexOf("/") + 1);
    const goOn = name && button(`Next file: ${name}`, "Alt+.", () => void this.bench.open(next!), `Next: ${name}`);
    return [h("span", { class: "review-count" }, "Every change is decided"), h("span", { class: "rule" }), goOn, save];
  }

  private parts(document: Document, at: number, count: number): Child[] {
    const act = (action: () => void) => () => {
      action();
      document.view.focus();
    };
    return [
      h("span", { class: "review-count", "aria-live": "polite" }, `${at + 1} of ${plural(count, "change")}`),
      button("Previous change", "Alt+K", act(() => step(document.view, -1)), icon("up")),
      button("Next change", "Alt+J", act(() => step(document.view, 1)), icon("down")),
      h("span", { class: "rule" }),
      button("Reject", "Alt+N", act(() => decide(document.view, "reject")), "Reject", caps("Alt+N")),
      button("Accept", "Alt+Y", act(() => decide(document.view, "accept")), "Accept", caps("Alt+Y")),
      h("span", { class: "rule" }),
      button("Reject all", "Mod+Shift+Backspace", act(() => document.rejectAll()), "Reject all"),
      button("Accept all", "Mod+Shift+Enter", act(() => document.acceptAll()), "Accept all"),
    ];
  }
}

function button(label: string, keys: string, onclick: () => void, ...children: Child[]): HTMLButtonElement {
  const name = label.replace(/:.*/, "").toLowerCase().replaceAll(" ", "-");
  return h("button", { type: "button", class: `bar-button bar-${name}`, title: `${label} (${keys.replace("Mod", "Ctrl")})`, "aria-label": label, onclick }, ...children);
}
