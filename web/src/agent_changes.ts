// What a run changed, over the editor: its files, the diff of one, decisions by hunk, and putting them into the folder.

import { AgentDiff, Decisions } from "./agent_diff";
import type { AgentLink } from "./agent_link";
import type { ChangedFile, Changes, Landed } from "./agent_wire";
import { fill, h, icon, plural, type Child } from "./dom";
import type { Decision } from "./review";
import { caps } from "./tabs";
import type { Workbench } from "./workbench";

const ALIVE = new Set(["starting", "running", "waiting"]);
/** Not written; the file stays as the person has it. */
const TROUBLE = new Set(["conflict", "refused"]);
const KINDS: Record<string, string> = { added: "A", modified: "M", removed: "D" };
const UNSHOWN: Record<string, string> = {
  binary: "This file is not text, so it is accepted or rejected as a whole.",
  "too large": "This file is too large to show, so it is accepted or rejected as a whole.",
};

export class AgentChanges {
  readonly element = h("section", { class: "changes", "aria-label": "Changes of the run", hidden: true });
  private readonly title = h("div", { class: "changes-head" });
  private readonly report = h("div", { class: "changes-report", role: "status", "aria-live": "polite" });
  private readonly files = h("ul", { class: "changes-files", "aria-label": "Changed files" });
  private readonly stage = h("div", { class: "changes-stage" });
  private readonly bar = h("div", { class: "changes-bar", role: "toolbar", "aria-label": "Review of the run's changes" });
  private changes: Changes | null = null;
  private decisions: Decisions[] = [];
  private landed: Landed | null = null;
  private diff: AgentDiff | null = null;
  private at = 0;
  private run = "";
  private wasAlive = false;
  private busy = false;
  /** What is decided is what was applied last. */
  private isLanded = false;

  constructor(
    private readonly bench: Workbench,
    private readonly link: AgentLink,
    private readonly app: HTMLElement,
  ) {
    this.element.append(this.title, this.report, h("div", { class: "changes-body" }, this.files, this.stage), this.bar);
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  private get isAlive(): boolean {
    return ALIVE.has(this.link.runs.find((run) => run.run === this.run)?.state ?? "");
  }

  private get mayDecide(): boolean {
    return !this.isAlive && !this.bench.hello.readOnly && !this.busy;
  }

  async open(run: string): Promise<void> {
    this.run = run;
    this.landed = null;
    this.isLanded = false;
    try {
      const changes = await this.link.ask<Changes>({ type: "changes", run });
      if (this.run === run) this.show(changes);
    } catch (error) {
      this.bench.complain(error);
    }
  }

  close(): void {
    if (!this.isOpen) return;
    this.element.hidden = true;
    this.app.classList.remove("changes-shown");
    this.diff?.view.destroy();
    this.diff = this.changes = null;
    this.run = "";
  }

  /** Keys of the review; false when it is not open. */
  key(action: "next" | "previous" | Decision | "accept all" | "reject all"): boolean {
    if (!this.isOpen) return false;
    if (action === "next" || action === "previous") this.diff?.step(action === "next" ? 1 : -1);
    else if (action === "accept all" || action === "reject all") this.decideAll(action === "accept all" ? "accept" : "reject");
    else if (this.diff) this.diff.decide(action);
    else this.decideWhole(action);
    return true;
  }

  /** The list of runs came anew: one that has just ended has its changes for good. */
  listed(): void {
    if (!this.isOpen || this.wasAlive === this.isAlive) return;
    this.wasAlive = this.isAlive;
    if (!this.isAlive) void this.open(this.run);
  }

  private show(changes: Changes): void {
    const path = this.changes?.files[this.at]?.path;
    this.changes = changes;
    this.wasAlive = this.isAlive;
    this.decisions = changes.files.map((file) => new Decisions(file));
    this.element.hidden = false;
    this.app.classList.add("changes-shown");
    this.at = Math.max(0, changes.files.findIndex((file) => file.path === path));
    this.showFile(this.at);
    const row = this.element.querySelector<HTMLElement>(".changes-file[aria-current=true]");
    (row ?? this.element.querySelector<HTMLElement>(".changes-close"))?.focus();
  }

  private showFile(at: number): void {
    this.at = at;
    this.diff?.view.destroy();
    this.diff = null;
    const file = this.changes?.files[at];
    fill(this.stage, ...(file ? this.stageOf(file) : [this.nothing()]));
    this.render();
  }

  private nothing(): HTMLElement {
    return h("p", { class: "panel-empty" }, this.isAlive ? "The agent has changed no file so far." : "The agent changed no file, so there is nothing to review.");
  }

  private stageOf(file: ChangedFile): Child[] {
    const note = file.note && h("p", { class: "changes-note" }, file.note);
    if (file.unshown || file.hunks.length === 0) return [note, this.wholeCard(file)];
    this.diff = new AgentDiff(file, this.decisions[file.number]!, () => this.mayDecide, () => this.decided());
    return [note, this.diff.element];
  }

  private wholeCard(file: ChangedFile): HTMLElement {
    const says = UNSHOWN[file.unshown] ?? (file.note || "There are no lines to show; the file is accepted or rejected as a whole.");
    const choose = (decision: Decision, label: string) => h("button", { type: "button", class: `whole-button whole-${decision}`, onclick: () => this.decideWhole(decision) }, label);
    return h("div", { class: "changes-whole" }, h("p", {}, says), this.mayDecide && h("div", { class: "choices" }, choose("accept", "Accept the file"), choose("reject", "Reject the file")));
  }

  private decideWhole(decision: Decision): void {
    const decisions = this.decisions[this.at];
    if (!decisions || !this.mayDecide) return;
    decisions.all(decisions.of[0] === decision ? "open" : decision);
    this.decided();
  }

  private decided(): void {
    this.isLanded = false;
    this.render();
  }

  private decideAll(decision: Decision): void {
    if (!this.mayDecide) return;
    for (const decisions of this.decisions) decisions.all(decision);
    this.diff?.refresh();
    this.decided();
  }

  // Drawing.

  private render(): void {
    if (!this.changes) return;
    this.element.classList.toggle("is-only-shown", !this.mayDecide);
    const { files } = this.changes;
    const statement = this.link.runs.find((run) => run.run === this.run)?.statement ?? "";
    const close = h("button", { type: "button", class: "icon-button changes-close", title: "Back to the editor", "aria-label": "Close the changes", onclick: () => this.close() }, icon("close"));
    const what = this.isAlive ? "Changes so far" : "Changes";
    fill(this.title, h("h2", {}, what), h("span", { class: "changes-statement", title: statement }, `${plural(files.length, "file")} · ${statement.split("\n", 1)[0]}`), close);
    this.renderFiles(files);
    this.renderWhole();
    this.renderReport();
    fill(this.bar, ...this.barParts());
  }

  private renderFiles(files: readonly ChangedFile[]): void {
    const focused = [...this.files.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    this.files.hidden = files.length === 0;
    fill(this.files, ...files.map((file, at) => h("li", {}, this.fileRow(file, at))));
    if (focused >= 0) this.files.querySelectorAll("button")[focused]?.focus();
  }

  private fileRow(file: ChangedFile, at: number): HTMLElement {
    const cut = file.path.lastIndexOf("/") + 1;
    const mark = this.markOf(file, at);
    return h(
      "button",
      { type: "button", class: `changes-file is-${file.kind} ${mark.tone}`, title: `${file.path}: ${file.kind}${mark.says ? `, ${mark.says}` : ""}`, "aria-current": at === this.at ? "true" : null, onclick: () => this.showFile(at) },
      h("span", { class: "changes-kind", "aria-label": file.kind }, KINDS[file.kind] ?? "?"),
      h("span", { class: "run-name" }, file.path.slice(cut), cut > 0 && h("span", { class: "run-folder" }, file.path.slice(0, cut - 1))),
      file.numAdded > 0 && h("span", { class: "num-added" }, `+${file.numAdded}`),
      file.numRemoved > 0 && h("span", { class: "num-removed" }, `−${file.numRemoved}`),
      h("span", { class: "changes-mark", role: "img", "aria-label": mark.says || "not decided" }, mark.sign),
    );
  }

  private markOf(file: ChangedFile, at: number): { sign: Child; says: string; tone: string } {
    const landed = this.landed?.files.find((one) => one.path === file.path);
    if (landed && TROUBLE.has(landed.state)) return { sign: icon("alert"), says: landed.state, tone: "is-conflict" };
    if (landed) return { sign: icon("check"), says: landed.state === "merged" ? "applied, with your edits" : "applied", tone: "is-landed" };
    const decisions = this.decisions[at]!;
    if (decisions.count("open") === decisions.of.length) return { sign: h("span", { class: "ring" }), says: "", tone: "" };
    if (decisions.count("open") > 0) return { sign: h("span", { class: "dot" }), says: `${decisions.count("open")} not decided`, tone: "is-partly" };
    if (decisions.count("accept") > 0) return { sign: icon("check"), says: decisions.count("reject") > 0 ? "partly accepted" : "accepted", tone: "is-accepted" };
    return { sign: icon("close"), says: "rejected", tone: "is-rejected" };
  }

  private renderWhole(): void {
    const decided = this.decisions[this.at]?.of[0];
    for (const type of ["accept", "reject"]) this.stage.querySelector(`.whole-${type}`)?.setAttribute("aria-pressed", String(decided === type));
  }

  private renderReport(): void {
    if (!this.landed) return fill(this.report);
    const troubled = this.landed.files.filter((file) => TROUBLE.has(file.state));
    const applied = this.landed.files.length - troubled.length;
    const undo = this.landed.canUndo && h("button", { type: "button", class: "quiet", onclick: () => void this.undo() }, icon("undo"), "Undo");
    fill(
      this.report,
      applied > 0 && h("p", { class: "report-good" }, icon("check"), h("span", {}, `Applied to ${plural(applied, "file")}.`), undo),
      troubled.length > 0 && this.conflicts(troubled),
    );
  }

  private conflicts(files: Landed["files"]): HTMLElement {
    const open = (path: string) => {
      this.close();
      void this.bench.open(path);
    };
    const rows = files.map(({ path, message }) =>
      h("li", {}, h("strong", {}, path), h("span", {}, message || "You changed the same lines meanwhile; the file stays as you have it."), h("button", { type: "button", class: "quiet card-line", onclick: () => open(path) }, "Open your file")),
    );
    return h("div", { class: "card" }, h("h3", {}, icon("alert"), `${plural(files.length, "file")} not written`), h("ul", {}, ...rows));
  }

  private barParts(): Child[] {
    if (!this.changes || this.changes.files.length === 0) return [];
    if (this.bench.hello.readOnly) return [h("span", { class: "review-count" }, "etude was started read-only, so changes can only be looked at.")];
    if (this.isAlive) return [h("span", { class: "review-count" }, "The agent is still at work. Once it has ended you decide each change.")];
    const count = (decided: "accept" | "reject" | "open") => this.decisions.reduce((sum, decisions) => sum + decisions.count(decided), 0);
    const accepted = count("accept");
    const name = this.busy ? "Applying…" : this.isLanded ? "Applied" : accepted > 0 ? `Apply ${plural(accepted, "change")}` : "Apply accepted";
    const apply = h("button", { type: "button", class: "bar-button bar-save", disabled: accepted === 0 || this.busy || this.isLanded, onclick: () => void this.land() }, name);
    const move = (action: "next" | "previous") => () => this.key(action);
    return [
      h("span", { class: "review-count", "aria-live": "polite" }, `${accepted} accepted · ${count("reject")} rejected · ${count("open")} left`),
      h("button", { type: "button", class: "bar-button bar-previous-change", title: "Previous change (Alt+K)", "aria-label": "Previous change", onclick: move("previous") }, icon("up")),
      h("button", { type: "button", class: "bar-button bar-next-change", title: "Next change (Alt+J)", "aria-label": "Next change", onclick: move("next") }, icon("down")),
      h("span", { class: "top-gap" }),
      h("button", { type: "button", class: "bar-button bar-reject-all", onclick: () => this.decideAll("reject") }, "Reject all"),
      h("button", { type: "button", class: "bar-button", title: "Accept all (Ctrl+Shift+Enter)", onclick: () => this.decideAll("accept") }, "Accept all", caps("Mod+Shift+Enter")),
      apply,
    ];
  }

  // Landing.

  private async land(): Promise<void> {
    if (!this.changes || !this.mayDecide) return;
    const accepted = this.changes.files
      .map(({ number }, at) => ({ number, hunks: this.decisions[at]!.accepted }))
      .filter(({ hunks }) => hunks === null || hunks.length > 0);
    await this.writing(
      () => this.link.ask<Landed>({ type: "land", run: this.run, version: this.changes!.version, accepted }),
      (landed) => {
        this.landed = landed;
        this.isLanded = true;
      },
    );
  }

  private async undo(): Promise<void> {
    await this.writing(() => this.link.ask<Landed>({ type: "undo", run: this.run }), (undone) => {
      this.isLanded = false;
      const kept = undone.files.filter((file) => TROUBLE.has(file.state));
      this.landed = kept.length > 0 ? { ...undone, files: kept } : null;
      this.bench.notice(kept.length > 0 ? "Taken back, but for files that were changed since." : "The changes were taken back.", "good");
    });
  }

  private async writing(act: () => Promise<Landed>, then: (landed: Landed) => void): Promise<void> {
    this.busy = true;
    this.render();
    try {
      then(await act());
      this.bench.filesChanged.emit();
      await this.bench.refresh();
    } catch (error) {
      this.bench.complain(error);
    } finally {
      this.busy = false;
      this.render();
    }
  }
}
