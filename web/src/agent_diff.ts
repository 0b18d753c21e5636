// One changed file of a run: its diff, hunk by hunk. A decision is kept beside the text, so it can be taken back.

import { Change, type Chunk, presentableDiff, unifiedMergeView } from "@codemirror/merge";
import { EditorState, RangeSetBuilder, StateEffect, Text } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, drawSelection, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { search, searchKeymap } from "@codemirror/search";
import type { ChangedFile } from "./agent_wire";
import { h, icon } from "./dom";
import { languageOf } from "./languages";
import { currentHunk, currentIndex, goTo, hunks, step, type Decision } from "./review";
import { codeLook, styleNonce } from "./theme";

export type Decided = Decision | "open";

/** What is decided of a file: one entry a hunk; one for the whole of a file without hunks. */
export class Decisions {
  readonly of: Decided[];

  constructor(readonly file: ChangedFile) {
    this.of = Array.from({ length: Math.max(1, file.hunks.length) }, () => "open");
  }

  get whole(): boolean {
    return this.file.hunks.length === 0;
  }

  count(decided: Decided): number {
    return this.of.filter((one) => one === decided).length;
  }

  all(decided: Decided): void {
    this.of.fill(decided);
  }

  /** As the server takes it: null for the whole file. */
  get accepted(): number[] | null {
    if (this.whole || this.count("accept") === this.of.length) return this.of[0] === "accept" ? null : [];
    return this.of.flatMap((one, at) => (one === "accept" ? [at] : []));
  }
}

interface Extent {
  fromA: number;
  toA: number;
  fromB: number;
  toB: number;
}

// For marking what differs inside of lines, all hunks together; beyond it whole lines are marked.
const FINE_DIFF_MS = 300;

const decided = StateEffect.define<null>();

export class AgentDiff {
  readonly element = h("div", { class: "diff-view" });
  readonly view: EditorView;
  private readonly extents: Extent[];

  constructor(
    readonly file: ChangedFile,
    private readonly decisions: Decisions,
    private readonly mayDecide: () => boolean,
    private readonly onDecided: () => void,
  ) {
    const before = Text.of((file.before ?? "").split("\n"));
    const after = Text.of((file.after ?? "").split("\n"));
    this.extents = file.hunks.map((hunk) => ({
      fromA: lineStart(before, hunk.beforeStart),
      toA: lineStart(before, hunk.beforeEnd),
      fromB: lineStart(after, hunk.afterStart),
      toB: lineStart(after, hunk.afterEnd),
    }));
    this.view = new EditorView({ parent: this.element, state: this.state(before, after) });
    const first = hunks(this.view.state)[0];
    if (first) goTo(this.view, first);
    this.paint();
  }

  step(by: 1 | -1): void {
    step(this.view, by);
  }

  /** Decide the hunk at the cursor, and go to the next that is not decided. */
  decide(decision: Decision): void {
    const all = hunks(this.view.state);
    const at = currentIndex(this.view.state);
    if (!all[at] || !this.mayDecide()) return;
    this.set(all[at], decision);
    const next = [...all.slice(at + 1), ...all.slice(0, at)].find((chunk) => this.decidedOf(chunk) === "open");
    if (next) goTo(this.view, next);
  }

  /** Draw decisions that were made elsewhere. */
  refresh(): void {
    this.view.dispatch({ effects: decided.of(null) });
    this.paint();
  }

  private toggle(chunk: Chunk, decision: Decision): void {
    this.set(chunk, this.decidedOf(chunk) === decision ? "open" : decision);
  }

  private set(chunk: Chunk, decision: Decided): void {
    for (const at of this.hunksIn(chunk)) this.decisions.of[at] = decision;
    this.refresh();
    this.onDecided();
  }

  /** A chunk of the view may hold several hunks that lie next to each other, or a part of a long one. */
  private hunksIn(chunk: Chunk): number[] {
    return this.extents.flatMap(({ fromA, toA, fromB, toB }, at) =>
      fromA <= chunk.toA && toA >= chunk.fromA && fromB <= chunk.toB && toB >= chunk.fromB ? [at] : [],
    );
  }

  private decidedOf(chunk: Chunk): Decided {
    const all = this.hunksIn(chunk).map((at) => this.decisions.of[at]!);
    return all.length > 0 && all.every((one) => one === all[0]) ? all[0]! : "open";
  }

  private state(before: Text, after: Text): EditorState {
    const merge = unifiedMergeView({
      original: before,
      mergeControls: (type) => this.button(type),
      highlightChanges: true,
      collapseUnchanged: { margin: 4, minSize: 8 },
      diffConfig: { override: () => this.changes(before, after) },
    });
    return EditorState.create({
      doc: after,
      extensions: [
        styleNonce(),
        codeLook,
        lineNumbers(),
        highlightSpecialChars(),
        drawSelection(),
        search(),
        languageOf(this.file.path).support ?? [],
        keymap.of(searchKeymap),
        EditorState.readOnly.of(true),
        EditorView.contentAttributes.of({ "aria-label": `Changes of ${this.file.path}`, spellcheck: "false", "aria-readonly": "true" }),
        merge,
        currentHunk,
        this.marks(),
        EditorView.updateListener.of((update) => (update.viewportChanged || update.geometryChanged) && this.paint()),
      ],
    });
  }

  /** The server's hunks, so that both sides count the same; inside of each what differs is marked finely. */
  private changes(before: Text, after: Text): Change[] {
    const until = performance.now() + FINE_DIFF_MS;
    return this.extents.flatMap(({ fromA, toA, fromB, toB }) => {
      if (performance.now() > until) return [new Change(fromA, toA, fromB, toB)];
      const config = { scanLimit: 500, timeout: 50 };
      const inside = presentableDiff(before.sliceString(fromA, toA), after.sliceString(fromB, toB), config);
      return inside.map((one) => new Change(fromA + one.fromA, fromA + one.toA, fromB + one.fromB, fromB + one.toB));
    });
  }

  private button(type: Decision): HTMLElement {
    const [label, keys, name] = type === "accept" ? (["Accept", "Alt Y", "check"] as const) : (["Reject", "Alt N", "close"] as const);
    const onmousedown = (event: MouseEvent) => {
      event.preventDefault();
      const chunk = this.chunkAt(button.closest<HTMLElement>(".cm-deletedChunk"));
      if (chunk && this.mayDecide()) this.toggle(chunk, type);
    };
    // Not a stop of the Tab key: hunks are reached with Alt+J and Alt+K, and there may be hundreds.
    const button = h("button", { type: "button", class: `hunk-button hunk-${type}`, title: `${label} this change (${keys})`, tabindex: -1, onmousedown });
    button.append(icon(name), h("span", {}, label));
    return button;
  }

  private chunkAt(widget: HTMLElement | null): Chunk | undefined {
    const position = widget ? this.view.posAtDOM(widget) : -1;
    return hunks(this.view.state).find((chunk) => chunk.fromB === position);
  }

  /** Widgets are made once and kept, so their buttons are told here what is decided. */
  private paint(): void {
    requestAnimationFrame(() => {
      for (const widget of this.view.dom.querySelectorAll<HTMLElement>(".cm-deletedChunk")) {
        const chunk = this.chunkAt(widget);
        const state = chunk ? this.decidedOf(chunk) : "open";
        widget.dataset.decided = state;
        for (const type of ["accept", "reject"] as const) {
          const button = widget.querySelector(`.hunk-${type}`);
          button?.setAttribute("aria-pressed", String(state === type));
          const says = { accept: ["Accept", "Accepted"], reject: ["Reject", "Rejected"] }[type][state === type ? 1 : 0]!;
          if (button?.lastChild && button.lastChild.textContent !== says) button.lastChild.textContent = says;
        }
      }
    });
  }

  private marks() {
    const lines = { accept: Decoration.line({ class: "cm-accepted" }), reject: Decoration.line({ class: "cm-rejected" }) };
    const build = (view: EditorView): DecorationSet => {
      const builder = new RangeSetBuilder<Decoration>();
      for (const chunk of hunks(view.state)) {
        const state = this.decidedOf(chunk);
        if (state === "open" || chunk.fromB >= chunk.toB || chunk.fromB > view.viewport.to || chunk.endB < view.viewport.from) continue;
        for (let at = chunk.fromB; at <= chunk.endB; ) {
          const line = view.state.doc.lineAt(at);
          builder.add(line.from, line.from, lines[state]);
          at = line.to + 1;
        }
      }
      return builder.finish();
    };
    return ViewPlugin.fromClass(
      class {
        decorations: DecorationSet;

        constructor(view: EditorView) {
          this.decorations = build(view);
        }

        update(update: { view: EditorView }): void {
          this.decorations = build(update.view);
        }
      },
      { decorations: (plugin) => plugin.decorations },
    );
  }
}

/** Where line `number` (from 0) begins; the end of the text for the one after the last. */
function lineStart(text: Text, number: number): number {
  return number < text.lines ? text.line(number + 1).from : text.length;
}
