// The commands of a run as a terminal shows them: the last lines of each, live. It scrolls along unless one scrolled up.

import type { AgentRun, CommandOutput } from "./agent_run";
import { type Piece, plain } from "./ansi";
import { fill, h, icon } from "./dom";
import { EndFollower } from "./end_follower";
import { seconds } from "./run_list";

interface Shown {
  box: HTMLElement;
  head: HTMLElement;
  lines: HTMLElement;
  /** Of the first line in the page, counted from the first line that was ever printed. */
  first: number;
  state: string;
}

export class AgentTerminal {
  readonly element: HTMLElement;
  private readonly scroller = h("div", { class: "terminal", tabindex: 0, role: "group", "aria-label": "What commands printed" });
  private readonly toEnd = h("button", { type: "button", class: "to-end", onclick: () => this.scrollToEnd() }, icon("down"), "Latest");
  private readonly shown = new Map<CommandOutput, Shown>();
  private readonly end: EndFollower;

  constructor(private readonly run: AgentRun) {
    this.element = h("div", { class: "terminal-box" }, this.scroller, this.toEnd);
    this.end = new EndFollower(this.scroller, () => (this.toEnd.hidden = this.end.follows));
    this.render();
  }

  render(): void {
    if (this.run.commands.length === 0) {
      fill(this.scroller, h("p", { class: "panel-empty" }, "No command has printed anything yet. What the agent runs appears here, line by line."));
    } else if (this.shown.size === 0) fill(this.scroller);
    for (const [command, { box }] of this.shown) {
      if (this.run.commands.includes(command)) continue;
      box.remove();
      this.shown.delete(command);
    }
    for (const command of this.run.commands) this.renderCommand(command);
    this.toEnd.hidden = this.end.follows;
    this.end.keep();
  }

  show(command: CommandOutput): void {
    this.end.follows = false;
    this.render();
    this.shown.get(command)?.box.scrollIntoView({ block: "start" });
    this.scroller.focus();
  }

  private renderCommand(command: CommandOutput): void {
    const shown = this.shown.get(command) ?? this.added(command);
    this.renderHead(command, shown);
    for (; shown.first < command.numGone; shown.first++) shown.lines.firstChild?.remove();
    const stale = Math.max(0, command.changedFrom - shown.first);
    while (shown.lines.childNodes.length > stale) shown.lines.lastChild!.remove();
    const from = shown.first + shown.lines.childNodes.length - command.numGone;
    shown.lines.append(...command.lines.slice(from).map(lineOf));
    command.changedFrom = command.numGone + command.lines.length;
  }

  private added(command: CommandOutput): Shown {
    const head = h("div", { class: "terminal-head" });
    const lines = h("pre", { class: "terminal-lines" });
    const box = h("section", { class: "terminal-command" }, head, lines);
    this.scroller.append(box);
    const shown = { box, head, lines, first: command.numGone, state: "" };
    command.changedFrom = command.numGone;
    this.shown.set(command, shown);
    return shown;
  }

  private renderHead({ call, numGone }: CommandOutput, shown: Shown): void {
    const state = `${call.result ? "done" : "running"}|${numGone > 0}`;
    if (state === shown.state) return;
    shown.state = state;
    const says = call.result ? (call.result.error ? call.result.error.replaceAll("_", " ") : "ok") : "running";
    const time = call.result && call.result.seconds >= 0.1 ? ` · ${seconds(call.result.seconds)}` : "";
    const tone = call.result ? (call.result.error ? "is-bad" : "is-good") : "is-running";
    fill(
      shown.head,
      h("span", { class: "terminal-title" }, plain(call.summary || call.tool)),
      h("span", { class: `terminal-says ${tone}` }, says + time),
      numGone > 0 && h("span", { class: "terminal-gone" }, "Earlier lines are not shown."),
    );
  }

  private scrollToEnd(): void {
    this.end.follows = true;
    this.render();
    this.scroller.focus();
  }
}

function lineOf(pieces: Piece[]): HTMLElement {
  const line = h("div", { class: "terminal-line" });
  line.append(...pieces.map(({ text, look }) => (look ? h("span", { class: look }, text) : document.createTextNode(text))));
  return line;
}
