// How each file of what was pasted fares: merging, to review, saved; or why nothing was changed.

import { fill, h, icon, plural, type Child } from "./dom";
import type { Abstained, Failed } from "./wire";
import type { FileRun, Workbench } from "./workbench";

const TITLES: Record<string, string> = {
  ambiguous: "It fits in more than one place",
  no_anchor: "It fits nowhere in this file",
  other_file: "It seems to be for another file",
  lost_code: "It would drop code",
  no_longer_parses: "The result would not parse",
  invented_code: "The model made something up",
  no_change: "Nothing to change",
};

export class RunList {
  readonly element = h("section", { class: "runs", "aria-label": "Merges", "aria-live": "polite" });
  private timer = 0;
  private drawn: string | null = null;

  constructor(
    private readonly bench: Workbench,
    private readonly showSketchLine: (part: string, line: number) => void,
  ) {
    bench.changed.listen(() => this.render());
    this.render();
  }

  private render(): void {
    const { runs, runProblem } = this.bench;
    // Drawn anew only when something here changed: a button must not go away under the pointer.
    const key = [runProblem, this.bench.busy, this.bench.active?.path, ...runs.map((run) => this.key(run))].join("\n");
    if (key === this.drawn) return;
    this.drawn = key;
    fill(this.element, runProblem && problemCard("Nothing was merged", runProblem), ...this.head(), ...runs.flatMap((run) => this.rows(run)));
    this.tick();
  }

  private key(run: FileRun): string {
    const document = this.bench.find(run.path);
    const progress = run.progress && `${run.progress.stage} ${run.progress.done}/${run.progress.total}`;
    const outcome = [run.phase, run.problem?.message, run.ran?.seconds, run.saved];
    return [run.path, ...outcome, progress, document?.undecided, document?.dirty].join("|");
  }

  /** Seconds run on while something merges. */
  private tick(): void {
    if (this.bench.busy && !this.timer) {
      this.timer = window.setInterval(() => this.renderSeconds(), 100);
    } else if (!this.bench.busy && this.timer) {
      clearInterval(this.timer);
      this.timer = 0;
    }
  }

  private renderSeconds(): void {
    const run = this.bench.runs.find((candidate) => candidate.phase === "merging");
    const shown = this.element.querySelector(".run.is-merging .run-seconds");
    if (run && shown) shown.textContent = seconds((performance.now() - run.startedAt) / 1000);
  }

  private head(): Child[] {
    const { runs } = this.bench;
    if (runs.length < 2) return [];
    const open = runs.filter((run) => run.phase === "merged" && !run.saved).length;
    const saveAll = h("button", { type: "button", class: "quiet save-all", onclick: () => void this.bench.saveAll() }, "Accept and save all");
    saveAll.hidden = this.bench.busy || open === 0 || this.bench.hello.readOnly;
    return [h("div", { class: "runs-head" }, h("h2", {}, plural(runs.length, "file")), saveAll)];
  }

  private rows(run: FileRun): Child[] {
    const state = this.stateOf(run);
    const cut = run.path.lastIndexOf("/") + 1;
    const row = h(
      "button",
      {
        type: "button",
        class: `run ${state.kind}`,
        title: run.path,
        "aria-current": this.bench.active?.path === run.path ? "true" : null,
        onclick: () => void this.show(run),
      },
      h("span", { class: "run-sign" }, state.sign),
      h("span", { class: "run-name" }, run.path.slice(cut), cut > 0 && h("span", { class: "run-folder" }, run.path.slice(0, cut - 1))),
      h("span", { class: "run-state" }, state.says),
      h("span", { class: "run-seconds" }, run.ran ? seconds(run.ran.seconds) : ""),
    );
    return [row, run.phase === "merging" && progressLine(run), run.problem && this.problem(run, run.problem)];
  }

  private show(run: FileRun): Promise<void> {
    return this.bench.open(run.path).then((document) => document?.view.focus());
  }

  private stateOf(run: FileRun): { kind: string; says: string; sign: Child } {
    if (run.phase === "merging") return { kind: "is-merging", says: "Merging", sign: h("span", { class: "spinner" }) };
    if (run.phase === "waiting") return { kind: "is-waiting", says: "Waiting", sign: h("span", { class: "ring" }) };
    if (run.phase === "cancelled") return { kind: "is-cancelled", says: "Cancelled", sign: icon("close") };
    if (run.phase !== "merged") return { kind: "is-stuck", says: "Not changed", sign: icon("alert") };
    if (run.saved) return { kind: "is-saved", says: "Saved", sign: icon("check") };
    const undecided = this.bench.find(run.path)?.undecided ?? 0;
    if (undecided > 0) return { kind: "is-open", says: `${undecided} to review`, sign: h("span", { class: "dot" }) };
    const dirty = this.bench.find(run.path)?.dirty;
    return { kind: "is-decided", says: dirty ? "Not saved" : "Unchanged", sign: h("span", { class: "ring" }) };
  }

  private problem(run: FileRun, problem: Abstained | Failed): HTMLElement {
    if (problem.type === "failed") return problemCard("Not merged", problem.message);
    const title = TITLES[problem.reason] ?? "Nothing was changed";
    return problemCard(title, problem.message, this.sketchLine(run, problem), this.candidates(run, problem));
  }

  private sketchLine(run: FileRun, { sketchLine }: Abstained): Child {
    if (sketchLine === null) return null;
    return h(
      "button",
      { type: "button", class: "quiet card-line", onclick: () => this.showSketchLine(run.sketch, sketchLine) },
      "Show where in the sketch",
    );
  }

  private candidates(run: FileRun, { candidates }: Abstained): Child {
    if (candidates.length === 0) return null;
    const document = this.bench.find(run.path);
    const places = candidates.map((line) =>
      h(
        "button",
        { type: "button", class: "candidate", onclick: () => void this.goTo(run, line) },
        h("span", { class: "candidate-line" }, String(line + 1)),
        h("code", {}, document?.lineText(line) || "(empty line)"),
      ),
    );
    return h("div", { class: "candidates" }, h("p", {}, "It would fit at:"), ...places);
  }

  private async goTo(run: FileRun, line: number): Promise<void> {
    const document = await this.bench.open(run.path);
    document?.flashLine(line);
  }
}

function progressLine(run: FileRun): HTMLElement {
  const { progress } = run;
  const part = progress && progress.total > 0 ? progress.done / progress.total : null;
  const bar = h("div", { class: part === null ? "bar is-endless" : "bar" }, h("span"));
  bar.style.setProperty("--part", String(part ?? 0));
  return h("div", { class: "progress" }, h("span", { class: "progress-stage" }, capital(progress?.stage ?? "starting")), bar);
}

function problemCard(title: string, message: string, ...more: Child[]): HTMLElement {
  return h("div", { class: "card", role: "status" }, h("h3", {}, icon("alert"), title), h("p", {}, message), ...more);
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function seconds(value: number): string {
  if (value < 0.1) return `${Math.max(1, Math.round(value * 1000))} ms`;
  return `${value.toFixed(value < 10 ? 1 : 0)} s`;
}
