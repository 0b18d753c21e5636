// Where a run begins: the task, and the runs there are.

import type { AgentLink } from "./agent_link";
import type { RunShown, RunStarted } from "./agent_wire";
import { fill, h, icon, plural, type Child } from "./dom";
import { caps } from "./tabs";
import type { Workbench } from "./workbench";

const MAX_BEST_OF = 8;

export class AgentHome {
  readonly element: HTMLElement;
  private readonly task = h("textarea", {
    class: "agent-task",
    rows: 5,
    placeholder: "What is to be done? For example: fix the failing test in tests/test_cart.py.",
    "aria-label": "Task for the agent",
    spellcheck: "false",
  });
  private readonly check = h("input", {
    class: "agent-check",
    type: "text",
    placeholder: "pytest -q",
    autocomplete: "off",
    spellcheck: "false",
    "aria-describedby": "agent-check-hint",
  });
  private readonly bestOf = h("select", { class: "agent-best-of" });
  private readonly button = h("button", { type: "submit", class: "apply-button" }, "Start", caps("Mod+Enter"));
  private readonly unsaved = h("p", { class: "agent-unsaved", hidden: true });
  private readonly problem = h("p", { class: "agent-problem", role: "alert", hidden: true });
  private readonly list = h("div", { class: "agent-runs" });
  private drawn: string | null = null;
  private starting = false;

  constructor(
    private readonly bench: Workbench,
    private readonly link: AgentLink,
    private readonly show: (run: string) => void,
  ) {
    this.bestOf.append(...Array.from({ length: MAX_BEST_OF }, (_, at) => h("option", { value: at + 1 }, at === 0 ? "1 attempt" : `Best of ${at + 1}`)));
    this.element = h("div", { class: "agent-home" }, this.form(), h("h3", { class: "agent-runs-title", id: "agent-runs-title" }, "Runs in this folder"), this.list);
    link.runsChanged.listen(() => this.render());
    link.linkChanged.listen(() => this.render());
    bench.changed.listen(() => this.renderUnsaved());
    this.render();
  }

  focus(): void {
    this.task.focus();
  }

  /** True if the focus was where Ctrl+Enter means to start. */
  submit(): boolean {
    if (!this.element.contains(document.activeElement)) return false;
    void this.start();
    return true;
  }

  private form(): HTMLElement {
    const onsubmit = (event: SubmitEvent) => {
      event.preventDefault();
      void this.start();
    };
    return h(
      "form",
      { class: "agent-form", onsubmit },
      h("div", { class: "agent-box" }, this.task, h("div", { class: "agent-box-foot" }, h("label", { class: "agent-best-of-label" }, h("span", { class: "unseen" }, "Attempts"), this.bestOf), this.button)),
      h("label", { class: "agent-check-label" }, h("span", {}, "Done when this succeeds"), this.check),
      h("p", { class: "agent-hint", id: "agent-check-hint" }, "Optional. The agent works in a hidden copy of this folder; your files stay as they are until you accept its changes."),
      this.unsaved,
      this.problem,
    );
  }

  private async start(): Promise<void> {
    if (this.starting) return;
    if (!this.task.value.trim()) {
      this.say("Say what is to be done first.");
      this.task.focus();
      return;
    }
    this.say("");
    this.become(true);
    try {
      const asked = { type: "start" as const, statement: this.task.value, check: this.check.value, bestOf: Number(this.bestOf.value) };
      const { run } = await this.link.ask<RunStarted>(asked);
      this.task.value = "";
      this.show(run);
    } catch (error) {
      this.say(error instanceof Error ? error.message : String(error));
    } finally {
      this.become(false);
    }
  }

  private become(starting: boolean): void {
    this.starting = starting;
    this.button.disabled = starting;
    fill(this.button, starting ? "Starting…" : "Start", !starting && caps("Mod+Enter"));
  }

  private say(problem: string): void {
    this.problem.hidden = problem === "";
    this.problem.textContent = problem;
  }

  /** The agent reads the disk; what is typed and not saved it does not see. */
  private renderUnsaved(): void {
    const unsaved = this.bench.documents.filter((document) => document.dirty).length;
    const text = `${plural(unsaved, "open file")} ${unsaved === 1 ? "is" : "are"} not saved; the agent starts from what is on disk.`;
    this.unsaved.hidden = unsaved === 0;
    if (this.unsaved.textContent !== text) this.unsaved.textContent = text;
  }

  private render(): void {
    const key = JSON.stringify([this.link.runs, this.link.open]);
    if (key === this.drawn) return;
    this.drawn = key;
    if (this.link.runs.length > 0) this.renderRows();
    else fill(this.list, h("p", { class: "panel-empty" }, this.link.open ? "No run yet. Describe a task above; it goes on when you close this page." : "Connecting…"));
  }

  private renderRows(): void {
    const at = [...this.list.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    const rows = this.link.runs.map((run) => h("li", {}, this.row(run)));
    fill(this.list, h("ul", { "aria-labelledby": "agent-runs-title" }, ...rows));
    if (at >= 0) this.list.querySelectorAll("button")[at]?.focus();
  }

  private row(run: RunShown): HTMLElement {
    const { sign, says, tone } = runState(run);
    return h(
      "button",
      { type: "button", class: `agent-run ${tone}`, onclick: () => this.show(run.run) },
      h("span", { class: "run-sign" }, sign),
      h("span", { class: "agent-run-text" }, h("span", { class: "agent-run-statement" }, firstLine(run.statement)), h("span", { class: "agent-run-says" }, [says, ...details(run)].join(" · "))),
    );
  }
}

function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0]!;
}

function details(run: RunShown): string[] {
  const parts = [];
  if (run.numTurns > 0) parts.push(plural(run.numTurns, "turn"));
  if (run.numChanged > 0) parts.push(`${plural(run.numChanged, "file")} changed`);
  if (run.startedAt) parts.push(when(run.startedAt));
  return parts;
}

function when(iso: string): string {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : date.toLocaleDateString([], { day: "numeric", month: "short" });
}

const ENDS: Record<string, string> = {
  finished: "Finished",
  stopped: "Stopped",
  stuck: "Got stuck",
  max_turns: "Out of turns",
  max_tokens: "Out of tokens",
  max_seconds: "Out of time",
  max_cost: "Out of budget",
  context_full: "Context full",
  model_failed: "Model failed",
  crashed: "Crashed",
};

/** How a run is, in a word and a sign. */
export function runState({ state, reason }: Pick<RunShown, "state" | "reason">): { sign: Child; says: string; tone: string } {
  switch (state) {
    case "starting":
      return { sign: h("span", { class: "spinner" }), says: "Starting", tone: "is-alive" };
    case "running":
      return { sign: h("span", { class: "spinner" }), says: "Working", tone: "is-alive" };
    case "waiting":
      return { sign: h("span", { class: "dot" }), says: "Waits for your answer", tone: "is-asking" };
    case "applied":
      return { sign: icon("check"), says: "Applied", tone: "is-good" };
    case "discarded":
      return { sign: icon("close"), says: "Discarded", tone: "" };
    case "crashed":
      return { sign: icon("alert"), says: "Crashed", tone: "is-bad" };
    default:
      if (reason === "finished") return { sign: icon("check"), says: "Finished", tone: "is-good" };
      return { sign: reason === "stopped" ? icon("stop") : icon("alert"), says: ENDS[reason] ?? "Ended", tone: reason === "stopped" ? "" : "is-bad" };
  }
}
