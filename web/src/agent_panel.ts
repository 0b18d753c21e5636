// The agent's side of the page: the task and the runs, or the run one watches. Says when an answer is waited for.

import { AgentChanges } from "./agent_changes";
import { AgentHome } from "./agent_home";
import { AgentLink } from "./agent_link";
import { AgentRun } from "./agent_run";
import { AgentView } from "./agent_view";
import { h, icon, plural } from "./dom";
import { caps } from "./tabs";
import type { Workbench } from "./workbench";

export class AgentPanel {
  readonly element = h("aside", { class: "agent", "aria-label": "Agent" });
  readonly button = h("button", { type: "button", class: "agent-button", title: "Agent (Alt+A)", "aria-pressed": "false", onclick: () => this.toggle() });
  readonly changes: AgentChanges;
  private readonly badge = h("span", { class: "agent-badge", hidden: true });
  private readonly voice = h("div", { class: "unseen", role: "status", "aria-live": "polite" });
  private readonly body = h("div", { class: "agent-body" });
  private readonly link: AgentLink;
  private readonly home: AgentHome;
  private view: AgentView | null = null;
  private run: AgentRun | null = null;
  private badgeKey = "";
  private hasEnded = false;

  constructor(
    private readonly bench: Workbench,
    private readonly app: HTMLElement,
  ) {
    this.link = new AgentLink(bench.connection);
    this.home = new AgentHome(bench, this.link, (run) => this.watch(run));
    this.changes = new AgentChanges(bench, this.link, app);
    this.button.append(icon("agent"), h("span", { class: "agent-button-name" }, "Agent"), this.badge);
    const close = h("button", { type: "button", class: "icon-button", title: "Back to the sketch (Alt+A)", "aria-label": "Close the agent panel", onclick: () => this.toggle(false) }, icon("close"));
    this.element.append(h("div", { class: "sketch-head agent-head" }, h("h2", {}, "Agent"), caps("Alt+A"), h("span", { class: "top-gap" }), close), this.body, this.voice);
    this.body.append(this.home.element);
    this.link.arrived.listen((events) => events.run === this.run?.id && this.run.take(events));
    this.link.complained.listen((message) => bench.notice(message, "bad"));
    this.link.runsChanged.listen(() => this.listed());
    this.renderBadge();
  }

  get isShown(): boolean {
    return this.app.classList.contains("agent-shown");
  }

  toggle(show = !this.isShown): void {
    this.app.classList.toggle("agent-shown", show);
    this.button.setAttribute("aria-pressed", String(show));
    if (!show) {
      this.changes.close();
      return this.button.focus();
    }
    this.view?.render();
    this.focus();
  }

  private focus(): void {
    if (!this.view) this.home.focus();
    else if (this.run?.question && this.view.isAlive) this.view.question.focus();
    else this.element.querySelector<HTMLElement>(".agent-tab[aria-selected=true]")?.focus();
  }

  /** Ctrl+Enter: false when the focus is in neither of the fields that it sends. */
  submit(): boolean {
    if (!this.isShown) return false;
    return this.view ? this.view.question.submit() : this.home.submit();
  }

  private watch(run: string): void {
    this.view?.close();
    this.hasEnded = false;
    this.run = new AgentRun(run);
    this.view = new AgentView(this.run, this.link, {
      back: () => this.goHome(),
      review: (id) => void this.changes.open(id),
      discard: (id) => this.askToDiscard(id),
      resumed: (id) => {
        this.changes.close();
        this.watch(id);
      },
      complain: (error) => this.bench.complain(error),
    });
    this.run.changed.listen(() => this.said());
    this.body.replaceChildren(this.view.element);
    this.link.watch(run);
    this.focus();
  }

  private goHome(): void {
    this.view?.close();
    this.view = this.run = null;
    this.changes.close();
    this.link.watch(null);
    this.body.replaceChildren(this.home.element);
    this.home.focus();
  }

  private listed(): void {
    this.renderBadge();
    this.lookWhetherItGoesOn();
    this.view?.render();
    this.changes.listed();
  }

  /** A run that ended can be told to go on from elsewhere, such as a terminal; its events begin anew then. */
  private lookWhetherItGoesOn(): void {
    const listed = this.link.runs.find((run) => run.run === this.run?.id);
    if (!listed || !this.run?.stopped) return;
    const isAlive = ["starting", "running", "waiting"].includes(listed.state);
    if (isAlive && this.hasEnded) this.watch(listed.run);
    else if (!isAlive) this.hasEnded = true;
  }

  /** What happens, in a sentence, for those who listen; the steps themselves would be far too much. */
  private said(): void {
    if (this.run && this.voice.textContent !== this.run.said) this.voice.textContent = this.run.said;
  }

  private askToDiscard(run: string): void {
    this.bench.notice("The run and everything it changed will be gone. Your files stay as they are.", "plain", [
      { label: "Discard the run", act: () => void this.discard(run) },
    ]);
  }

  private async discard(run: string): Promise<void> {
    try {
      await this.link.ask({ type: "discard", run });
      if (this.run?.id === run) this.goHome();
    } catch (error) {
      this.bench.complain(error);
    }
  }

  /** In the toolbar and in the title, so that one sees from elsewhere that the agent waits. */
  private renderBadge(): void {
    const asking = this.link.runs.filter((run) => run.state === "waiting").length;
    const working = this.link.runs.filter((run) => run.state === "running" || run.state === "starting").length;
    const key = `${asking}|${working}`;
    if (key === this.badgeKey) return;
    this.badgeKey = key;
    this.badge.hidden = asking + working === 0;
    this.badge.className = `agent-badge ${asking > 0 ? "is-asking" : "is-working"}`;
    this.badge.textContent = asking > 0 ? "?" : String(working);
    const says = asking > 0 ? "the agent asks you something" : working > 0 ? `${plural(working, "run")} at work` : "";
    this.button.setAttribute("aria-label", says ? `Agent: ${says}` : "Agent");
    document.title = `${asking > 0 ? "● The agent asks · " : working > 0 ? "▸ " : ""}${this.bench.hello.root} · etude`;
  }
}
