// One run as one watches it: plan, steps, terminal, diagnostics, its question, and what became of it.

import type { AgentLink } from "./agent_link";
import { AgentQuestion } from "./agent_question";
import type { AgentRun } from "./agent_run";
import { AgentSteps } from "./agent_steps";
import { AgentTerminal } from "./agent_terminal";
import type { RunShown } from "./agent_wire";
import { runState } from "./agent_home";
import { plain } from "./ansi";
import { fill, h, icon, plural, type Child } from "./dom";
import { seconds } from "./run_list";

const ALIVE = new Set(["starting", "running", "waiting"]);
const MAX_DIAGNOSTICS = 200;

type TabName = "steps" | "terminal" | "diagnostics";

export interface ViewActions {
  back: () => void;
  review: (run: string) => void;
  discard: (run: string) => void;
  resumed: (run: string) => void;
  complain: (error: unknown) => void;
}

export class AgentView {
  readonly element: HTMLElement;
  readonly question: AgentQuestion;
  private readonly head = h("div", { class: "agent-run-head" });
  private readonly meta = h("p", { class: "agent-meta" });
  private readonly plan = h("details", { class: "plan", open: true, hidden: true });
  private readonly planSummary = h("summary", {});
  private readonly planSteps = h("ol", { "aria-label": "Plan" });
  private readonly outcome = h("section", { class: "outcome", "aria-label": "Outcome", hidden: true });
  private readonly diagnostics = h("div", { class: "diagnostics", tabindex: 0, role: "group", "aria-label": "Diagnostics" });
  private readonly steps: AgentSteps;
  private readonly terminal: AgentTerminal;
  private readonly panels: Record<TabName, HTMLElement>;
  private readonly tabs: Record<TabName, HTMLElement>;
  private readonly clock: number;
  private tab: TabName = "steps";
  private readonly drawn = new Map<string, string>();

  constructor(
    private readonly run: AgentRun,
    private readonly link: AgentLink,
    private readonly act: ViewActions,
  ) {
    this.question = new AgentQuestion((question, text) => this.answer(question, text));
    this.terminal = new AgentTerminal(run);
    this.steps = new AgentSteps(run, (command) => {
      this.show("terminal");
      this.terminal.show(command);
    });
    this.panels = { steps: this.steps.element, terminal: this.terminal.element, diagnostics: this.diagnostics };
    this.tabs = { steps: this.tabButton("steps", "Steps"), terminal: this.tabButton("terminal", "Terminal"), diagnostics: this.tabButton("diagnostics", "Diagnostics") };
    this.plan.append(this.planSummary, this.planSteps);
    const panels = Object.entries(this.panels).map(([name, panel]) =>
      h("div", { class: "agent-panel", role: "tabpanel", id: `agent-panel-${name}`, "aria-labelledby": `agent-tab-${name}` }, panel),
    );
    this.element = h(
      "div",
      { class: "agent-view" },
      this.head,
      this.meta,
      this.plan,
      h("div", { class: "agent-tabs", role: "tablist", "aria-label": "About the run" }, ...Object.values(this.tabs)),
      h("div", { class: "agent-panels" }, ...panels),
      this.question.element,
      this.outcome,
    );
    run.changed.listen(() => this.render());
    this.clock = window.setInterval(() => this.renderMeta(), 1000);
    this.show("steps");
    this.render();
  }

  close(): void {
    clearInterval(this.clock);
  }

  /** The run as the list has it, or as its events tell. */
  get shown(): Pick<RunShown, "state" | "reason" | "message" | "statement" | "startedAt" | "endedAt"> {
    const { stopped, started, question } = this.run;
    const listed = this.link.runs.find((run) => run.run === this.run.id);
    // The list may be a second behind the events.
    if (listed && !(stopped && ALIVE.has(listed.state))) return listed;
    const state = stopped ? "stopped" : question ? "waiting" : "running";
    return { state, reason: stopped?.reason ?? "", message: stopped?.message ?? "", statement: started?.statement ?? "", startedAt: "", endedAt: "" };
  }

  get isAlive(): boolean {
    return ALIVE.has(this.shown.state);
  }

  render(): void {
    this.renderHead();
    this.renderMeta();
    this.renderPlan();
    this.question.render(this.isAlive ? this.run.question : null);
    if (this.tab === "steps") this.steps.render();
    if (this.tab === "terminal") this.terminal.render();
    this.renderDiagnostics();
    this.nameTabs();
    this.renderOutcome();
  }

  /** Draws only when something that `key` tells apart has changed: a button must not go away under the pointer. */
  private once(part: string, key: string, draw: () => void): void {
    if (this.drawn.get(part) === key) return;
    this.drawn.set(part, key);
    draw();
  }

  private renderHead(): void {
    const { state, reason, statement } = this.shown;
    this.once("head", [state, reason, statement].join("\n"), () => {
      const stop = this.isAlive && h("button", { type: "button", class: "stop-button", onclick: (event: MouseEvent) => void this.stop(event) }, icon("stop"), "Stop");
      fill(
        this.head,
        h("button", { type: "button", class: "icon-button", title: "All runs", "aria-label": "All runs", onclick: this.act.back }, icon("back")),
        h("p", { class: "agent-statement", title: statement, tabindex: -1 }, statement || "…"),
        stop,
      );
    });
  }

  private renderMeta(): void {
    const { model } = this.run.started ?? { model: "" };
    const parts = [model, this.run.turn > 0 && plural(this.run.turn, "turn"), this.elapsed()];
    if (this.run.contextTokens > 0) parts.push(`${tokens(this.run.contextTokens)} in context`);
    if (this.run.generatedTokens > 0) parts.push(`${thousands(this.run.generatedTokens)} written`);
    if (this.run.cost > 0) parts.push(this.run.cost < 0.01 ? "< 0.01 cost" : `${this.run.cost.toFixed(2)} cost`);
    const text = parts.filter(Boolean).join(" · ");
    const { state, reason } = this.shown;
    this.once("meta", [state, reason, text].join("\n"), () => {
      const { sign, says, tone } = runState({ state, reason });
      fill(this.meta, h("span", { class: `agent-state ${tone}` }, sign, says), h("span", { class: "agent-counts" }, text));
    });
  }

  private elapsed(): string {
    const { startedAt, endedAt } = this.shown;
    const from = Date.parse(startedAt);
    const to = endedAt ? Date.parse(endedAt) : Date.now();
    if (Number.isNaN(from) || Number.isNaN(to) || (!endedAt && !this.isAlive)) return this.run.seconds > 0 ? seconds(this.run.seconds) : "";
    return duration(Math.max(0, (to - from) / 1000));
  }

  private renderPlan(): void {
    const { plan } = this.run;
    this.once("plan", JSON.stringify(plan), () => {
      this.plan.hidden = plan.length === 0;
      const done = plan.filter((step) => step.state === "done").length;
      const active = plan.find((step) => step.state === "active");
      fill(this.planSummary, icon("chevron"), h("span", { class: "plan-title" }, "Plan"), h("span", { class: "plan-count" }, `${done} of ${plan.length}`), active && h("span", { class: "plan-active" }, active.text));
      fill(this.planSteps, ...plan.map(({ text, state }) => h("li", { class: `plan-step is-${state}`, "aria-current": state === "active" ? "step" : null }, planSign(state), h("span", {}, text))));
    });
  }

  private renderDiagnostics(): void {
    const { appeared, gone } = this.run.diagnostics;
    this.once("diagnostics", [...appeared, "-", ...gone].join("\n"), () => {
      const none = appeared.length + gone.length === 0;
      fill(
        this.diagnostics,
        none && h("p", { class: "panel-empty" }, "The language servers say nothing that they did not say before the run. What appears or goes is listed here."),
        ...diagnosticList("Appeared", "is-bad", appeared),
        ...diagnosticList("Gone", "is-good", gone),
      );
    });
  }

  private nameTabs(): void {
    const { appeared, gone } = this.run.diagnostics;
    const commands = this.run.commands.length;
    this.once("tabs", [commands, appeared.length, gone.length].join("|"), () => {
      fill(this.tabs.terminal, "Terminal", commands > 0 && h("span", { class: "tab-count" }, String(commands)));
      fill(
        this.tabs.diagnostics,
        "Diagnostics",
        appeared.length > 0 && h("span", { class: "tab-count is-bad", "aria-label": `${appeared.length} appeared` }, `+${appeared.length}`),
        gone.length > 0 && h("span", { class: "tab-count is-good", "aria-label": `${gone.length} gone` }, `−${gone.length}`),
      );
    });
  }

  private renderOutcome(): void {
    const { state, reason, message } = this.shown;
    const listed = this.link.runs.find((run) => run.run === this.run.id);
    const changed = Math.max(this.run.stopped?.changed.length ?? 0, listed?.numChanged ?? 0);
    this.once("outcome", [state, reason, message, changed, this.run.stopped?.check, this.run.stopped !== null].join("\n"), () => {
      this.outcome.hidden = false;
      fill(this.outcome, ...(this.isAlive ? this.aliveParts() : this.endedParts(message, changed)));
    });
  }

  private aliveParts(): Child[] {
    return [h("div", { class: "outcome-actions" }, h("button", { type: "button", class: "quiet", onclick: () => this.act.review(this.run.id) }, "Show changes so far"))];
  }

  private endedParts(message: string, changed: number): Child[] {
    const { state } = this.shown;
    const nothing = changed === 0 && state !== "crashed" && this.run.stopped !== null;
    const review = h("button", { type: "button", class: "apply-button", onclick: () => this.act.review(this.run.id) }, state === "applied" ? "Show changes" : changed > 0 ? `Review ${plural(changed, "changed file")}` : "Review changes");
    const { check } = this.run.stopped ?? { check: "" };
    return [
      message && h("p", { class: "outcome-message" }, message),
      check && h("p", { class: `outcome-check is-${check}` }, icon(check === "passes" ? "check" : "alert"), `The command that tells when it is done ${check === "passes" ? "succeeds" : "fails"}.`),
      nothing && h("p", { class: "outcome-message" }, "The agent changed no file."),
      state === "stopped" || state === "crashed" ? this.followUp() : null,
      h("div", { class: "outcome-actions" }, h("button", { type: "button", class: "quiet", onclick: () => this.act.discard(this.run.id) }, "Discard the run"), !nothing && review),
    ];
  }

  /** A run that has ended goes on, with what else is to be done. */
  private followUp(): HTMLElement {
    const field = h("input", { type: "text", class: "agent-check follow-up-text", placeholder: "Say what else to do", "aria-label": "What else the agent should do", autocomplete: "off" });
    const button = h("button", { type: "submit", class: "quiet" }, "Go on");
    const onsubmit = (event: SubmitEvent) => {
      event.preventDefault();
      button.disabled = true;
      this.link
        .ask({ type: "resume", run: this.run.id, followUp: field.value })
        .then(() => this.act.resumed(this.run.id))
        .catch((error: unknown) => this.act.complain(error))
        .finally(() => (button.disabled = false));
    };
    return h("form", { class: "follow-up", onsubmit }, field, button);
  }

  // Acting.

  private async answer(question: string, text: string): Promise<void> {
    await this.link.ask({ type: "answer", run: this.run.id, question, text });
    this.tabs[this.tab].focus();
  }

  private async stop(event: MouseEvent): Promise<void> {
    const button = event.currentTarget as HTMLButtonElement;
    button.disabled = true;
    fill(button, icon("stop"), "Stopping…");
    try {
      await this.link.ask({ type: "stop", run: this.run.id });
    } catch (error) {
      this.act.complain(error);
      button.disabled = false;
      fill(button, icon("stop"), "Stop");
    }
  }

  // Tabs.

  private tabButton(name: TabName, title: string): HTMLElement {
    return h(
      "button",
      { type: "button", class: "agent-tab", role: "tab", id: `agent-tab-${name}`, "aria-controls": `agent-panel-${name}`, onclick: () => this.show(name), onkeydown: (event: KeyboardEvent) => this.onKey(event) },
      title,
    );
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    const names = Object.keys(this.tabs) as TabName[];
    const next = names[(names.indexOf(this.tab) + (event.key === "ArrowRight" ? 1 : names.length - 1)) % names.length]!;
    this.show(next);
    this.tabs[next].focus();
  }

  private show(tab: TabName): void {
    this.tab = tab;
    for (const [name, button] of Object.entries(this.tabs)) {
      button.setAttribute("aria-selected", String(name === tab));
      button.tabIndex = name === tab ? 0 : -1;
    }
    for (const [name, panel] of Object.entries(this.panels)) panel.parentElement?.toggleAttribute("hidden", name !== tab);
    this.render();
  }
}

function planSign(state: string): Node {
  const label = { done: "done", active: "in work" }[state] ?? "to do";
  const sign = h("span", { class: "plan-sign", role: "img", "aria-label": label });
  sign.append(state === "done" ? icon("check") : h("span", { class: "ring" }));
  return sign;
}

function diagnosticList(title: string, tone: string, lines: readonly string[]): Child[] {
  if (lines.length === 0) return [];
  const more = lines.length - MAX_DIAGNOSTICS;
  return [
    h("h3", { class: tone }, `${title} (${lines.length})`),
    h("ul", {}, ...lines.slice(0, MAX_DIAGNOSTICS).map((line) => h("li", { class: tone }, h("code", {}, plain(line))))),
    more > 0 && h("p", { class: "panel-empty" }, `And ${more} more.`),
  ];
}

function tokens(count: number): string {
  return `${thousands(count)} tokens`;
}

function thousands(count: number): string {
  return count < 1000 ? String(count) : `${(count / 1000).toFixed(count < 10_000 ? 1 : 0)}k`;
}

function duration(total: number): string {
  const whole = Math.round(total);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
