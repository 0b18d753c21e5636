// The line at the bottom: connection, model, the last merge, the cursor.

import { h, fill, type Child } from "./dom";
import { seconds } from "./run_list";
import type { Workbench } from "./workbench";

export class StatusBar {
  readonly element = h("footer", { class: "status", "aria-label": "Status" });
  private drawn = "";

  constructor(private readonly bench: Workbench) {
    bench.changed.listen(() => this.render());
    this.render();
  }

  private render(): void {
    const parts = [this.link(), ...this.model(), ...this.lastRun(), h("span", { class: "status-gap" }), ...this.place()];
    const key = parts.map((part) => (part instanceof Element ? part.outerHTML : "")).join("");
    if (key === this.drawn) return;
    this.drawn = key;
    fill(this.element, ...parts);
  }

  private link(): Child {
    const { link } = this.bench.connection;
    if (link === "open") return null;
    const says = { connecting: "Connecting…", lost: "Connection lost, trying again…", refused: "Not connected" }[link];
    return h("span", { class: `status-link is-${link}`, role: "alert" }, h("span", { class: "dot" }), says);
  }

  private model(): Child[] {
    const { name, phase, message } = this.bench.model;
    if (this.bench.connection.link !== "open") return [];
    const says = { loading: "Loading the model…", ready: name, failed: "No model" }[phase];
    const title = { loading: "Merges that need no choice work already", ready: "The model is ready", failed: message }[phase];
    const attributes = { class: `status-model is-${phase}`, title };
    if (phase !== "failed") return [h("span", attributes, h("span", { class: "dot" }), says)];
    const onclick = () => this.bench.notice(message, "bad");
    return [h("button", { type: "button", ...attributes, onclick }, h("span", { class: "dot" }), says)];
  }

  private lastRun(): Child[] {
    const ran = this.bench.lastRan;
    if (!ran) return [];
    const tokens = ran.tokens > 0 ? `${ran.tokens} tokens` : "no tokens";
    return [h("span", { class: "status-ran", title: `The last merge, by ${ran.model}` }, `${ran.engine} · ${tokens} · ${seconds(ran.seconds)}`)];
  }

  private place(): Child[] {
    const parts: Child[] = [];
    if (this.bench.hello.readOnly) parts.push(h("span", { class: "status-read-only" }, "Read-only"));
    const document = this.bench.active;
    if (!document) return parts;
    const { state } = document.view;
    const line = state.doc.lineAt(state.selection.main.head);
    parts.push(h("span", {}, `Ln ${line.number}, Col ${state.selection.main.head - line.from + 1}`));
    parts.push(h("span", {}, document.language));
    return parts;
  }
}
