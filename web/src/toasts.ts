// Short notices at the bottom; they go by themselves unless they ask something.

import { h, icon } from "./dom";
import type { Notice, Workbench } from "./workbench";

const SHOWN_MS = 6000;

export class Toasts {
  readonly element = h("div", { class: "toasts", role: "status", "aria-live": "polite" });

  constructor(bench: Workbench) {
    bench.noticed.listen((notice) => this.show(notice));
  }

  private show(notice: Notice): void {
    const toast = h("div", { class: `toast is-${notice.tone}` }, h("span", { class: "toast-text" }, notice.text));
    const close = () => toast.remove();
    for (const { label, act } of notice.actions) {
      const onclick = () => {
        close();
        act();
      };
      toast.append(h("button", { type: "button", class: "toast-action", onclick }, label));
    }
    toast.append(h("button", { type: "button", class: "toast-close", "aria-label": "Dismiss", onclick: close }, icon("close")));
    this.element.replaceChildren(toast);
    if (notice.tone !== "bad") setTimeout(close, SHOWN_MS);
  }
}
