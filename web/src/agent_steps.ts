// The steps of a run as they come: what the model says, each call as a line that opens, notices. Older ones are folded.

import type { AgentRun, CallItem, CommandOutput, Item, NoticeItem, TextItem } from "./agent_run";
import { plain } from "./ansi";
import { fill, h, icon } from "./dom";
import { EndFollower } from "./end_follower";
import { seconds } from "./run_list";

// So many stay in the page; the ones before them come back on a click.
const MAX_SHOWN = 250;
// While one reads further up nothing is taken away, up to this.
const MAX_SHOWN_AT_ALL = 2_000;
// As much as one sees of a command without opening the terminal.
const PREVIEW_LINES = 6;

export class AgentSteps {
  readonly element: HTMLElement;
  private readonly log = h("div", { class: "steps-log", role: "log", "aria-label": "Steps", "aria-live": "off" });
  private readonly earlier = h("button", { type: "button", class: "quiet steps-earlier", onclick: () => this.showEarlier() });
  private readonly elements = new Map<Item, HTMLElement>();
  private readonly end: EndFollower;
  private first = 0;
  private next = 0;

  constructor(
    private readonly run: AgentRun,
    private readonly showTerminal: (command: CommandOutput) => void,
  ) {
    this.element = h("div", { class: "steps", tabindex: 0, "aria-label": "Steps of the run", role: "group" }, this.earlier, this.log);
    this.earlier.hidden = true;
    this.end = new EndFollower(this.element);
  }

  render(): void {
    const { follows } = this.end;
    for (const item of this.run.fresh) {
      const element = this.elements.get(item);
      if (element) update(item, element);
    }
    this.run.fresh.clear();
    if (follows) this.skipToEnd();
    const arrived: HTMLElement[] = [];
    for (; this.next < this.run.items.length; this.next++) arrived.push(this.made(this.run.items[this.next]!));
    this.log.append(...arrived);
    if (follows || this.elements.size > MAX_SHOWN_AT_ALL) this.fold();
    this.end.keep();
  }

  /** Of a long replay only the end is drawn. */
  private skipToEnd(): void {
    const from = this.run.items.length - MAX_SHOWN;
    if (from <= this.next) return;
    fill(this.log);
    this.elements.clear();
    this.first = this.next = from;
  }

  /** Take the oldest out of the page. */
  private fold(): void {
    for (const item of this.run.items.slice(this.first, Math.max(this.first, this.next - MAX_SHOWN))) {
      this.elements.get(item)?.remove();
      this.elements.delete(item);
      this.first++;
    }
    this.nameEarlier();
  }

  private nameEarlier(): void {
    this.earlier.hidden = this.first === 0;
    fill(this.earlier, `Show earlier steps (${this.first})`);
  }

  private showEarlier(): void {
    const from = Math.max(0, this.first - MAX_SHOWN);
    const height = this.element.scrollHeight;
    const older = this.run.items.slice(from, this.first).map((item) => this.made(item));
    this.first = from;
    this.log.prepend(...older);
    this.nameEarlier();
    this.element.scrollTop += this.element.scrollHeight - height;
    this.end.follows = false;
  }

  private made(item: Item): HTMLElement {
    const element = this.elementOf(item);
    this.elements.set(item, element);
    update(item, element);
    return element;
  }

  private elementOf(item: Item): HTMLElement {
    if (item.kind === "turn") return h("div", { class: "step-turn" }, h("span", {}, `Turn ${item.number}`));
    if (item.kind === "text") return h("div", { class: "step-text" });
    if (item.kind !== "call") return noticeOf(item);
    return callOf(item, this.showTerminal);
  }
}

function noticeOf(item: NoticeItem): HTMLElement {
  if (item.kind === "answer") return h("div", { class: "step-answer" }, h("span", { class: "step-who" }, "You"), h("p", {}, item.text));
  if (item.kind === "end") return h("div", { class: "step-end" }, item.text);
  // Several lines are a table, such as that of several attempts.
  return h("div", { class: item.text.includes("\n") ? "step-notice is-table" : "step-notice" }, plain(item.text));
}

/** The body is filled when it is opened, and only then. */
function callOf(item: CallItem, showTerminal: (command: CommandOutput) => void): HTMLElement {
  const body = h("div", { class: "call-body" });
  const details = h(
    "details",
    { class: "step-call", ontoggle: () => details.open && fillBody(item, body, showTerminal) },
    h("summary", { class: "call-line" }, h("span", { class: "call-sign" }), h("span", { class: "call-summary" }), h("span", { class: "call-says" })),
    body,
  );
  return h("div", { class: "step-call-box" }, details, h("pre", { class: "call-preview", "aria-hidden": "true", hidden: true }));
}

function fillBody(item: CallItem, body: HTMLElement, showTerminal: (command: CommandOutput) => void): void {
  const { command } = item;
  fill(
    body,
    item.arguments && h("h4", {}, item.tool),
    item.arguments && h("pre", { class: "call-text" }, readable(item.arguments) || "(no arguments)"),
    item.result && h("h4", {}, "What the agent read of it"),
    item.result && h("pre", { class: "call-text" }, plain(item.result.text) || "(nothing)"),
    command && h("button", { type: "button", class: "quiet call-terminal", onclick: () => showTerminal(command) }, "Show in the terminal"),
  );
}

function update(item: Item, element: HTMLElement): void {
  if (item.kind === "text") updateText(item, element);
  else if (item.kind === "call") updateCall(item, element);
}

/** Only what is new is added; setting the whole text anew would cost more with every piece. */
function updateText(item: TextItem, element: HTMLElement): void {
  const node = element.firstChild instanceof Text ? element.firstChild : element.appendChild(document.createTextNode(""));
  if (item.text.length > node.length) node.appendData(item.text.slice(node.length));
  if (item.leftOut === 0) return;
  const note = element.querySelector(".step-left-out") ?? element.appendChild(h("p", { class: "step-left-out" }));
  note.textContent = `${item.leftOut} more characters are not shown here; the run's trace has them.`;
}

function updateCall(item: CallItem, element: HTMLElement): void {
  const { result } = item;
  const state = !result ? "is-running" : result.error ? "is-wrong" : "is-done";
  if (!element.classList.contains(state)) {
    element.className = `step-call-box ${state}`;
    element.querySelector(".call-summary")!.textContent = plain(item.summary || item.tool);
    fill(element.querySelector(".call-sign")!, signOf(item));
  }
  fill(element.querySelector(".call-says")!, saysOf(item));
  const preview = element.querySelector<HTMLElement>(".call-preview")!;
  preview.hidden = result !== null || !item.command;
  if (!preview.hidden) preview.textContent = lastLines(item.command!);
  else preview.textContent = "";
  const details = element.querySelector("details")!;
  if (details.open && result) details.dispatchEvent(new Event("toggle"));
}

function signOf({ result }: CallItem): Node {
  if (!result) return h("span", { class: "spinner", role: "img", "aria-label": "running" });
  const sign = icon(result.error ? "alert" : "check");
  sign.removeAttribute("aria-hidden");
  sign.setAttribute("role", "img");
  sign.setAttribute("aria-label", result.error ? "failed" : "done");
  return sign;
}

function saysOf({ result }: CallItem): string {
  if (!result) return "";
  const parts = [result.error.replaceAll("_", " "), result.seconds >= 0.1 ? seconds(result.seconds) : ""];
  return parts.filter(Boolean).join(" · ");
}

function lastLines(command: CommandOutput): string {
  const lines = command.lines.map((line) => line.map((piece) => piece.text).join(""));
  if (lines[lines.length - 1] === "") lines.pop();
  return lines.slice(-PREVIEW_LINES).join("\n");
}

/** Arguments with one name a line; as they are when they are no JSON. */
function readable(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null) return text;
    return Object.entries(value)
      .map(([name, inner]) => `${name}: ${typeof inner === "string" ? inner : JSON.stringify(inner)}`)
      .join("\n");
  } catch {
    return text;
  }
}
