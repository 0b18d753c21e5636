// What is open and what may be done with it. No DOM but the editors' own; the parts of the page listen here.

import { type Connection, RequestFailed } from "./connection";
import { Document } from "./document";
import { plural, Signal } from "./dom";
import type { Abstained, Failed, Hello, ModelState, OpenedFile, Outcome, ProgressSent, Ran, SplitReply, Undone } from "./wire";

/** waiting → merging → one of merged, abstained, failed, cancelled. Later states follow from the document. */
export type RunPhase = "waiting" | "merging" | "merged" | "abstained" | "failed" | "cancelled";

/** One file of what was pasted. */
export interface FileRun {
  path: string;
  sketch: string;
  phase: RunPhase;
  progress: ProgressSent | null;
  startedAt: number;
  problem: Abstained | Failed | null;
  ran: Ran | null;
  saved: boolean;
}

export interface Notice {
  text: string;
  tone: "plain" | "good" | "bad";
  actions: { label: string; act: () => void }[];
}

export class Workbench {
  readonly changed = new Signal();
  readonly noticed = new Signal<Notice>();
  readonly filesChanged = new Signal();
  readonly documents: Document[] = [];
  active: Document | null = null;
  runs: FileRun[] = [];
  runProblem: string | null = null;
  lastRan: Ran | null = null;
  model: ModelState;
  private cancelCurrent: (() => void) | null = null;
  private batch = 0;

  constructor(
    readonly connection: Connection,
    readonly hello: Hello,
  ) {
    this.model = hello.model;
    connection.modelChanged.listen((model) => {
      this.model = model;
      this.changed.emit();
    });
    connection.linkChanged.listen(() => this.changed.emit());
  }

  get busy(): boolean {
    return this.runs.some((run) => run.phase === "merging" || run.phase === "waiting");
  }

  find(path: string): Document | undefined {
    return this.documents.find((document) => document.path === path);
  }

  // Opening and closing.

  async open(path: string, { show = true }: { show?: boolean } = {}): Promise<Document | null> {
    const known = this.find(path);
    if (known) {
      if (show) this.show(known);
      return known;
    }
    try {
      const file = await this.connection.get<OpenedFile>("/api/file", { path });
      return this.add(new Document(path, file, this.hello.readOnly), show);
    } catch (error) {
      this.complain(error);
      return null;
    }
  }

  private add(document: Document, show: boolean): Document {
    const raced = this.find(document.path);
    if (raced) return raced;
    this.documents.push(document);
    document.changed.listen(() => this.changed.emit());
    if (show || !this.active) this.show(document);
    else this.changed.emit();
    return document;
  }

  show(document: Document): void {
    this.active = document;
    this.changed.emit();
    document.view.requestMeasure();
  }

  /** The next file of the last reply that waits for decisions or for saving. */
  get nextOpenRun(): FileRun | undefined {
    const at = this.runs.findIndex((run) => run.path === this.active?.path);
    const others = [...this.runs.slice(at + 1), ...this.runs.slice(0, Math.max(at, 0))];
    return others.find((run) => run.phase === "merged" && !run.saved);
  }

  /** Take over what changed on disk in files that are not edited here. */
  async refresh(): Promise<void> {
    for (const document of [...this.documents]) {
      if (document.dirty || document.phase !== "idle" || this.connection.link !== "open") continue;
      try {
        const file = await this.connection.get<OpenedFile>("/api/file", { path: document.path });
        if (file.sha256 !== document.baseSha && !document.dirty && document.phase === "idle") document.reload(file);
      } catch {
        // Gone or unreadable: what is shown stays, and saving it will say so.
      }
    }
  }

  showNext(by: 1 | -1, { focus = true } = {}): void {
    if (!this.active || this.documents.length < 2) return;
    const at = this.documents.indexOf(this.active) + by;
    this.show(this.documents[(at + this.documents.length) % this.documents.length]!);
    if (focus) this.active.view.focus();
  }

  close(document: Document, { evenUnsaved = false } = {}): void {
    if (document.dirty && !document.readOnly && !evenUnsaved) {
      this.notice(`${document.path} has changes that are not saved.`, "plain", [
        { label: "Close without saving", act: () => this.close(document, { evenUnsaved: true }) },
      ]);
      return;
    }
    if (document.phase === "merging") return;
    const at = this.documents.indexOf(document);
    this.documents.splice(at, 1);
    document.view.destroy();
    document.element.remove();
    if (this.active === document) this.active = this.documents[Math.min(at, this.documents.length - 1)] ?? null;
    this.changed.emit();
  }

  // Merging.

  /** Take a pasted sketch or reply apart and merge each file's part, one after the other. */
  async applySketch(sketch: string, instruction: string): Promise<void> {
    if (this.busy) return;
    const batch = ++this.batch;
    this.runProblem = null;
    this.runs = [];
    this.changed.emit();
    const parts = await this.split(sketch);
    if (!parts || batch !== this.batch) return;
    this.runs = parts.map((part) => waiting(part.path, part.text));
    this.changed.emit();
    for (const [index, run] of this.runs.entries()) {
      if (run.phase === "waiting") await this.merge(run, parts[index]!.exists, instruction, index === 0);
      if (batch !== this.batch) return;
    }
  }

  private async split(sketch: string): Promise<SplitReply["files"] | null> {
    try {
      const asked = { reply: sketch, path: this.active?.path ?? null };
      const reply = await this.connection.post<SplitReply>("/api/split", asked);
      if (reply.files.length > 0) return reply.files;
      this.problem("No file is named in the sketch. Open the file it is for, then apply again.");
    } catch (error) {
      this.problem(error instanceof RequestFailed ? error.message : String(error));
    }
    return null;
  }

  private problem(message: string): void {
    this.runProblem = message;
    this.changed.emit();
  }

  private async merge(run: FileRun, exists: boolean, instruction: string, show: boolean): Promise<void> {
    const document = await this.openForMerge(run.path, exists, show);
    if (!document) {
      run.phase = "failed";
      run.problem = failed(`${run.path} could not be opened.`);
      this.changed.emit();
      return;
    }
    run.phase = "merging";
    run.startedAt = performance.now();
    const asked = { path: run.path, text: document.text, sketch: run.sketch, instruction };
    document.beginMerge();
    const { outcome, cancel } = this.connection.apply(asked, {
      progress: (progress) => {
        run.progress = progress;
        this.changed.emit();
      },
      hunk: (hunk) => document.stream(hunk.edit),
    });
    this.cancelCurrent = cancel;
    this.finish(run, document, await outcome);
  }

  private async openForMerge(path: string, exists: boolean, show: boolean): Promise<Document | null> {
    if (exists || this.find(path)) return this.open(path, { show });
    return this.add(new Document(path, null, this.hello.readOnly), show);
  }

  private finish(run: FileRun, document: Document, outcome: Outcome): void {
    this.cancelCurrent = null;
    run.phase = outcome.type;
    if (outcome.type === "merged") {
      document.finishMerge(outcome.edits);
    } else {
      document.takeBackMerge();
      if (document.isNew && document.text === "") this.close(document, { evenUnsaved: true });
    }
    if (outcome.type === "abstained" || outcome.type === "failed") run.problem = outcome;
    if (outcome.type === "merged" || outcome.type === "abstained") this.lastRan = run.ran = outcome.ran;
    this.changed.emit();
  }

  /** Stop the merge that runs, and those that wait behind it. */
  cancel(): boolean {
    if (!this.busy) return false;
    for (const run of this.runs) if (run.phase === "waiting") run.phase = "cancelled";
    this.cancelCurrent?.();
    this.changed.emit();
    return true;
  }

  // Saving.

  async save(document: Document, { quiet = false } = {}): Promise<boolean> {
    if (this.hello.readOnly) {
      this.notice("etude was started read-only, so nothing can be saved.", "plain");
      return false;
    }
    if (document.phase === "merging") return false;
    if (document.undecided > 0) {
      this.askToDecide(document);
      return false;
    }
    if (!document.dirty) return true;
    return this.write(document, document.baseSha, { quiet });
  }

  private askToDecide(document: Document): void {
    this.notice(`${document.path}: ${document.undecided} of the changes wait for your decision.`, "plain", [
      { label: "Accept all and save", act: () => void this.acceptAndSave(document) },
    ]);
  }

  async acceptAndSave(document: Document, { quiet = false } = {}): Promise<boolean> {
    document.acceptAll();
    return this.save(document, { quiet });
  }

  private async write(document: Document, baseSha256: string | null, { quiet = false } = {}): Promise<boolean> {
    try {
      const wasNew = document.isNew;
      const asked = { path: document.path, text: document.text, baseSha256 };
      const file = await this.connection.post<OpenedFile>("/api/save", asked);
      for (const run of this.runs) if (run.path === document.path && run.phase === "merged") run.saved = true;
      document.saved(file);
      if (wasNew) this.filesChanged.emit();
      if (!quiet) this.notice(`Saved ${document.path}`, "good", [{ label: "Undo save", act: () => void this.undoSave(document) }]);
      return true;
    } catch (error) {
      if (error instanceof RequestFailed && error.error === "FileChanged") this.offerReload(document, error.message);
      else this.complain(error);
      return false;
    }
  }

  private offerReload(document: Document, message: string): void {
    this.notice(message, "bad", [
      { label: "Reload from disk", act: () => void this.reload(document) },
      { label: "Replace what is on disk", act: () => void this.overwrite(document) },
    ]);
  }

  private async reload(document: Document): Promise<void> {
    await this.guarded(async () => {
      document.reload(await this.connection.get<OpenedFile>("/api/file", { path: document.path }));
    });
  }

  private async overwrite(document: Document): Promise<void> {
    await this.guarded(async () => {
      const now = await this.connection.get<OpenedFile>("/api/file", { path: document.path });
      await this.write(document, now.sha256);
    });
  }

  /** Accept what is undecided everywhere and save every file of the last reply. */
  async saveAll(): Promise<void> {
    if (this.busy) return;
    const open = this.documents.filter((document) => document.dirty || document.undecided > 0);
    let saved = 0;
    for (const document of open) {
      if (!(await this.acceptAndSave(document, { quiet: true }))) return;
      saved++;
    }
    if (saved > 0) this.notice(`Saved ${plural(saved, "file")}`, "good");
  }

  async undoSave(document: Document): Promise<void> {
    await this.guarded(async () => {
      const { file } = await this.connection.post<Undone>("/api/undo", { path: document.path });
      for (const run of this.runs) if (run.path === document.path) run.saved = false;
      if (file) document.reload(file);
      else document.goneFromDisk();
      if (!file) this.filesChanged.emit();
      this.notice(`Undid the last save of ${document.path}`, "good");
    });
  }

  private async guarded(action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.complain(error);
    }
  }

  complain(error: unknown): void {
    this.notice(error instanceof Error ? error.message : String(error), "bad");
  }

  notice(text: string, tone: Notice["tone"] = "plain", actions: Notice["actions"] = []): void {
    this.noticed.emit({ text, tone, actions });
  }
}

function waiting(path: string, sketch: string): FileRun {
  return { path, sketch, phase: "waiting", progress: null, startedAt: 0, problem: null, ran: null, saved: false };
}

function failed(message: string): Failed {
  return { type: "failed", id: "", error: "FileUnusable", message };
}
